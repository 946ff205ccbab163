package wire_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// slot is the hash function of Redis Cluster: CRC16 (XMODEM) of the hash tag, which is the first
// non-empty {…}, or of the whole key.
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

// TestKeySlot checks the function slot of these tests.
func TestKeySlot(t *testing.T) {
	// From the specification of Redis Cluster and `CLUSTER KEYSLOT`.
	for key, want := range map[string]uint16{"123456789": 12739, "foo": 12182, "{user1000}.following": 3443, "foo{}{bar}": 8363} {
		if got := slot(key); got != want {
			t.Errorf("slot(%q) is %d, want %d", key, got, want)
		}
	}
}

// nasty draws keys with characters that could end a hash tag, and any other keys.
func nasty() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("{}%:q2570BDx o\x00\n\x7f\u00e9\u2028")), 1, 12, -1),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 1, 20), func(b []byte) string { return string(b) }),
		rapid.StringN(1, 20, -1),
		rapid.SampledFrom([]string{"{}", "}", "{", "%", "%7B%7D", ":q", "{}:q", "\xff\xfe", "%25", "a{b}c"}),
	)
}

func kinds() *rapid.Generator[backend.Kind] {
	return rapid.SampledFrom([]backend.Kind{backend.KindExclusive, backend.KindOnce})
}

// checkKeys checks the names of a key in Redis: they are printable, in one slot, and begin with its
// prefix.
func checkKeys(t rapid.TB, prefix string, kind backend.Kind, key string) {
	k := wire.StoredNames(prefix, kind, key)
	tag := wire.Escape(key)
	parked, woken, triggers := wire.Stored(k[0], wire.Parked), wire.Stored(k[0], wire.Woken), wire.Stored(k[0], wire.Triggers)
	for _, name := range []string{k[0], k[1], parked, woken, triggers} {
		if !strings.Contains(name, "{"+tag+"}") || strings.Count(name, "{") != 1 || strings.Count(name, "}") != 1 {
			t.Fatalf("%q: the hash tag of %q is not the whole escaped key", key, name)
		}
		if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f }) || !strings.HasPrefix(name, prefix+":2:") {
			t.Fatalf("%q: %q", key, name)
		}
		if slot(name) != slot(tag) {
			t.Fatalf("%q: %q is in slot %d, want %d", key, name, slot(name), slot(tag))
		}
	}
}

// The names of a key in Redis are valid for any prefix, kind and key.
func TestKeyTag(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		checkKeys(t, rapid.SampledFrom([]string{"holdfast", "p:2:x:", "%"}).Draw(t, "prefix"), kinds().Draw(t, "kind"), nasty().Draw(t, "key"))
	})
}

// Two keys have different names in Redis. The name of an ordinary key is readable.
func TestKeyInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := nasty().Draw(t, "a"), nasty().Draw(t, "b")
		ka, kb := kinds().Draw(t, "kind of a"), kinds().Draw(t, "kind of b")
		if (wire.Escape(a) == wire.Escape(b)) != (a == b) {
			t.Fatalf("%q and %q are escaped as %q and %q", a, b, wire.Escape(a), wire.Escape(b))
		}
		if a == b && ka == kb {
			return
		}
		all := map[string]bool{}
		for _, k := range [][2]string{wire.StoredNames("p", ka, a), wire.StoredNames("p", kb, b)} {
			parked, woken := wire.Stored(k[0], wire.Parked), wire.Stored(k[0], wire.Woken)
			all[k[0]], all[k[1]], all[parked], all[woken], all[wire.Stored(k[0], wire.Triggers)] = true, true, true, true, true
		}
		if len(all) != 10 {
			t.Fatalf("%d %q and %d %q share a name in Redis: %v", ka, a, kb, b, all)
		}
	})
	if got := wire.StoredNames("holdfast", backend.KindOnce, "mail:42/é"); got[0] != "holdfast:2:o:{mail:42/%C3%A9}" || got[1] != got[0]+":q" {
		t.Errorf("%q", got)
	}
}

// The names that a list may find lead to their key, and the others to none.
func TestParseName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		prefix, kind, key := rapid.SampledFrom([]string{"holdfast", "p:2:x:", "%"}).Draw(t, "prefix"), kinds().Draw(t, "kind"), nasty().Draw(t, "key")
		hash := wire.StoredNames(prefix, kind, key)[0]
		for _, n := range []wire.KeyName{wire.Hash, wire.Queue, wire.Parked, wire.Flow} {
			if k, name, ok := wire.ParseName(prefix, wire.Stored(hash, n)); !ok || k != kind || name != key {
				t.Fatalf("%q is %d %q, %t", wire.Stored(hash, n), k, name, ok)
			}
		}
		for _, other := range []string{wire.Stored(hash, wire.Triggers), wire.Stored(hash, wire.Woken), hash + ":q:q", "x" + hash, hash[1:]} {
			if k, name, ok := wire.ParseName(prefix, other); ok {
				t.Fatalf("%q is %d %q", other, k, name)
			}
		}
	})
}

// The names of any key in Redis are valid, and two keys are escaped differently.
func FuzzKey(f *testing.F) {
	for _, key := range []string{"a", "{}", "%7B", "}{", "\x00\xff", "a:q"} {
		f.Add(key, "b"+key)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" {
			t.Skip("an empty key is refused earlier")
		}
		checkKeys(t, "p", backend.KindExclusive, a)
		if a != b && wire.Escape(a) == wire.Escape(b) {
			t.Fatalf("%q and %q are both escaped as %q", a, b, wire.Escape(a))
		}
	})
}

// adversary draws names that look like other names, hash tags, queues, channels, spaces and
// prefixes.
func adversary() *rapid.Generator[string] {
	return rapid.OneOf(
		nasty(),
		rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{
			"holdfast", ":2:", ":2:", "x:", "o:", "{", "}", "{}", ":q", "wake:", "%7B", "%", "a", "\x00", "}:q", "p", "p:2:x:{a}", "\r\n", "*", "[", "\xff",
		}), 1, 8), func(parts []string) string { return strings.Join(parts, "") }),
	)
}

// Two combinations of prefix, kind and key have different names in Redis, whatever they look like.
// No name is the queue of another key, or a channel. Both names of a key are in one slot, and only
// the key decides which.
func TestNamesNeverMeet(t *testing.T) {
	prefixes := rapid.OneOf(
		rapid.SampledFrom([]string{"holdfast", "p", "p:2:x:", "p:2:o:", "p:1", "p:", ":q", "%7B", "holdfast:2:wake:", "p*", "-"}),
		rapid.StringOfN(rapid.SampledFrom([]rune(":1xopq%-")), 1, 10, -1),
	)
	type id struct {
		prefix string
		kind   backend.Kind
		key    string
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func() id {
			return id{prefixes.Draw(t, "prefix"), kinds().Draw(t, "kind"), adversary().Draw(t, "key")}
		}
		a, b := draw(), draw()
		switch rapid.IntRange(0, 3).Draw(t, "alike") {
		case 0:
			b.key = a.key
		case 1:
			b = id{a.prefix, a.kind, wire.Escape(a.key)} // the name of a in Redis
		}
		ka, kb := wire.StoredNames(a.prefix, a.kind, a.key), wire.StoredNames(b.prefix, b.kind, b.key)
		if a == b != (ka == kb) || ka[0] == kb[1] || ka[1] == kb[0] || a != b && (ka[0] == kb[0] || ka[1] == kb[1]) {
			t.Fatalf("the names of %q are %q, those of %q are %q", a, ka, b, kb)
		}
		if slot(ka[0]) != slot(ka[1]) || a.key == b.key && slot(ka[0]) != slot(kb[0]) {
			t.Fatalf("%q and %q: slots %d, %d, %d", a, b, slot(ka[0]), slot(ka[1]), slot(kb[0]))
		}
		if strings.HasPrefix(ka[0], a.prefix+":2:wake:") {
			t.Fatalf("%q looks like a channel", ka)
		}
	})
}

// 100,000 keys have the same text in braces. They use almost all slots, so the text of a key cannot
// choose a shard.
func TestSlotsCannotBeChosen(t *testing.T) {
	used := map[uint16]bool{}
	for i := range 100_000 {
		used[slot(wire.StoredNames("holdfast", backend.KindOnce, "{hot}"+strings.Repeat("}", i%7)+rapidID(i))[0])] = true
	}
	if len(used) < 16000 { // all but a few of 16384
		t.Errorf("%d slots are used, want at least 16000", len(used))
	}
}

func rapidID(i int) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[i>>16&15], digits[i>>12&15], digits[i>>8&15], digits[i>>4&15], digits[i&15]})
}

// Unescape reverses Escape, and does not panic on other text.
func TestUnescape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOf(rapid.Byte()).Draw(t, "key"))
		if got := wire.Unescape(wire.Escape(key)); got != key {
			t.Errorf("%q is read back as %q", key, got)
		}
	})
	for _, odd := range []string{"%", "%G1", "%4", "%%41", ""} {
		wire.Unescape(odd)
	}
}
