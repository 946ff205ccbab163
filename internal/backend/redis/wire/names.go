package wire

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	layout   = ":2:" // version of the layout in Redis; Lockers of two versions do not see each other's keys
	idLength = 26    // of a request, a grant or an operator's call
	maxName  = 512   // bytes of the name of a key
)

// KeyPrefix returns the prefix of the stored names of all keys.
func KeyPrefix(prefix string) string { return prefix + layout }

// ChannelPrefix returns the prefix of the channels of notifications.
func ChannelPrefix(prefix string) string { return prefix + layout + "wake:" }

// StoredNames returns the names of the hash and the queue of a key. All stored names of a key share a
// slot in a Cluster, because the escaped name is their hash tag.
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

// Stored returns the name of the data of a key, from the name of its hash.
func Stored(hash string, name KeyName) string {
	switch name {
	case Queue:
		return hash + ":q"
	case Shares:
		return hash + ":s"
	case Parked:
		return hash + ":p"
	case Woken:
		return hash + ":w"
	case Triggers:
		return hash + ":t"
	case Flow:
		return hash + ":f"
	default:
		return hash
	}
}

// Pattern returns the pattern of SCAN for all stored names of the keys of a kind, or of both kinds if it
// is 0: a key whose rate is in use may have no hash. match is a glob pattern for the escaped name; empty:
// all keys.
func Pattern(prefix string, kind backend.Kind, match string) string {
	spaces := map[backend.Kind]string{0: "[xo]", backend.KindExclusive: "x", backend.KindOnce: "o"}[kind]
	return escapeGlob(prefix) + layout + spaces + ":{" + escape(cmp.Or(match, "*")) + "}*" // the brace is the only one of a name
}

// ParseName returns the key whose hash, queue, parked entries or rate have this name. ok is false for
// any other name: other data of a key, another prefix or another layout.
func ParseName(prefix, stored string) (kind backend.Kind, name string, ok bool) {
	for _, n := range []KeyName{Queue, Parked, Flow} {
		if hash, found := strings.CutSuffix(stored, Stored("", n)); found {
			stored = hash
			break
		}
	}
	rest, ok := strings.CutPrefix(stored, prefix+layout)
	if !ok || len(rest) < len("x:{k}") || rest[1:3] != ":{" || rest[len(rest)-1] != '}' {
		return 0, "", false
	}
	switch rest[0] {
	case 'x':
		kind = backend.KindExclusive
	case 'o':
		kind = backend.KindOnce
	default:
		return 0, "", false
	}
	name = unescape(rest[3 : len(rest)-1])
	return kind, name, StoredNames(prefix, kind, name)[0] == stored
}

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

// unescape reverses escape. For a name that escape did not return, the result is arbitrary.
func unescape(name string) string {
	if !strings.Contains(name, "%") {
		return name
	}
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '%' && i+2 < len(name) {
			if c, err := strconv.ParseUint(name[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(c))
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

// escapeGlob escapes a text for use in a glob pattern.
func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
