package lockcore

import (
	"fmt"
	"strings"
)

const (
	maxKeyLen    = 512
	maxPrefixLen = 64
	layout       = ":1:" // version of the layout in Redis; two of them run side by side during a deploy
)

// redisKeys returns the hash and the queue of a key. They share a slot in Cluster: the escaped name is the hash tag.
func redisKeys(prefix string, kind Kind, key string) [2]string {
	space := "x"
	if kind == KindOnce {
		space = "o"
	}
	queue := prefix + layout + space + ":{" + escape(key) + "}:q"
	return [2]string{queue[:len(queue)-len(":q")], queue}
}

func checkKey(key string) error {
	switch {
	case key == "":
		return fmt.Errorf("%w: empty", ErrKey)
	case len(key) > maxKeyLen:
		return fmt.Errorf("%w: %d bytes long, must be at most %d", ErrKey, len(key), maxKeyLen)
	}
	return nil
}

func checkPrefix(p string) error {
	if len(p) > maxPrefixLen || strings.ContainsFunc(p, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || r == '{' || r == '}'
	}) {
		return fmt.Errorf("lockcore: Options.Prefix is %q, must be at most %d printable ASCII characters without space and braces", p, maxPrefixLen)
	}
	return nil
}

// escape keeps a name inside its hash tag, and two names apart: braces, percent and everything that is not printable
// ASCII become %XX. It is injective, for % itself is escaped.
func escape(key string) string {
	plain := true
	for i := range len(key) {
		if odd(key[i]) {
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
		if c := key[i]; odd(c) {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func odd(c byte) bool { return c <= ' ' || c >= 0x7f || c == '{' || c == '}' || c == '%' }
