package redis

import (
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Key returns a key and the names of its hash and its queue. The names share a slot in a Cluster,
// because the escaped name is their hash tag.
func (b *Backend) Key(kind backend.Kind, name string) backend.Key {
	return backend.Key{Kind: kind, Name: name, Stored: StoredNames(b.prefix, kind, name)}
}

// StoredNames returns the names of the hash and the queue of a key.
func StoredNames(prefix string, kind backend.Kind, name string) [2]string {
	space := ""
	switch kind {
	case backend.KindExclusive:
		space = "x"
	case backend.KindOnce:
		space = "o"
	default:
		panic("redis: unknown kind of key")
	}
	queue := prefix + layout + space + ":{" + escape(name) + "}:q"
	return [2]string{queue[:len(queue)-len(":q")], queue}
}

// parkedNames returns the names of two sorted sets in the slot of a key: its parked entries, and
// its woken entries.
func parkedNames(stored string) (entries, woken string) { return stored + ":p", stored + ":w" }

// sharesName returns the name of the sorted set of the shares of a key.
func sharesName(stored string) string { return stored + ":s" }

// escape makes a name safe inside its hash tag. Braces, percent signs and bytes that are not
// printable ASCII become %XX. It is injective, because % itself is escaped.
func escape(key string) string {
	plain := true
	for i := range len(key) {
		if needsEscape(key[i]) {
			plain = false
			break
		}
	}
	if plain {
		return key
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(key) {
		if c := key[i]; needsEscape(c) {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func needsEscape(c byte) bool { return c <= ' ' || c >= 0x7f || c == '{' || c == '}' || c == '%' }
