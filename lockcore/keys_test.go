package lockcore_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/lockcore"
)

// slot is Redis Cluster's: CRC16 (XMODEM) of the hash tag, the first non-empty {…}, or of the whole key.
func slot(key string) uint16 {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % 16384
}

func TestKeySlot(t *testing.T) {
	// From the Cluster specification and `CLUSTER KEYSLOT`.
	for key, want := range map[string]uint16{"123456789": 12739, "foo": 12182, "{user1000}.following": 3443, "foo{}{bar}": 8363} {
		if got := slot(key); got != want {
			t.Errorf("slot(%q) is %d, want %d", key, got, want)
		}
	}
}

// nasty draws keys of what could break out of a hash tag, and of anything.
func nasty() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("{}%:q2570BDx o\x00\n\x7f\u00e9\u2028")), 1, 12, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 20), func(b []byte) string { return string(b) }),
		rapid.StringN(1, 20, -1),
		rapid.SampledFrom([]string{"{}", "}", "{", "%", "%7B%7D", ":q", "{}:q", "\xff\xfe", "%25", "a{b}c"}),
	)
}

func kinds() *rapid.Generator[lockcore.Kind] {
	return rapid.SampledFrom([]lockcore.Kind{lockcore.KindExclusive, lockcore.KindOnce})
}

// checkKeys is what holds of any key: printable, in one slot, in nobody else's name space.
func checkKeys(t rapid.TB, prefix string, kind lockcore.Kind, key string) {
	k := lockcore.RedisKeys(prefix, kind, key)
	tag := lockcore.Escape(key)
	for _, name := range k {
		if !strings.Contains(name, "{"+tag+"}") || strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 {
			t.Fatalf("%q: the tag of %q is not all of it", key, name)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) || !strings.HasPrefix(name, prefix+":1:") {
			t.Fatalf("%q: %q", key, name)
		}
	}
	if slot(k[0]) != slot(k[1]) || slot(k[0]) != slot(tag) {
		t.Fatalf("%q: %q is in slot %d, %q in %d", key, k[0], slot(k[0]), k[1], slot(k[1]))
	}
}

func TestKeyTag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkKeys(t, rapid.SampledFrom([]string{"holdfast", "p:1:x:", "%"}).Draw(t, "prefix"), kinds().Draw(t, "kind"), nasty().Draw(t, "key"))
	})
}

// Two keys are two names in Redis, and an ordinary one is legible.
func TestKeyInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := nasty().Draw(t, "a"), nasty().Draw(t, "b")
		ka, kb := kinds().Draw(t, "kind of a"), kinds().Draw(t, "kind of b")
		if (lockcore.Escape(a) == lockcore.Escape(b)) != (a == b) {
			t.Fatalf("%q and %q are %q and %q", a, b, lockcore.Escape(a), lockcore.Escape(b))
		}
		if a == b && ka == kb {
			return
		}
		all := map[string]bool{}
		for _, k := range [][2]string{lockcore.RedisKeys("p", ka, a), lockcore.RedisKeys("p", kb, b)} {
			all[k[0]], all[k[1]] = true, true
		}
		if len(all) != 4 {
			t.Fatalf("%s %q and %s %q share a key: %v", ka, a, kb, b, all)
		}
	})
	if got := lockcore.RedisKeys("holdfast", lockcore.KindOnce, "mail:42/é"); got[0] != "holdfast:1:o:{mail:42/%C3%A9}" || got[1] != got[0]+":q" {
		t.Errorf("%q", got)
	}
}

func FuzzKey(f *testing.F) {
	for _, key := range []string{"a", "{}", "%7B", "}{", "\x00\xff", "a:q"} {
		f.Add(key, "b"+key)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" {
			t.Skip("refused before it gets here")
		}
		checkKeys(t, "p", lockcore.KindExclusive, a)
		if a != b && lockcore.Escape(a) == lockcore.Escape(b) {
			t.Fatalf("%q and %q are both %q", a, b, lockcore.Escape(a))
		}
	})
}
