package idempotency_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
)

// cut splits flat into parts. cuts has their lengths, and the rest is the last part.
func cut(flat, cuts []byte) [][]byte {
	var parts [][]byte
	for _, c := range cuts {
		n := min(int(c), len(flat))
		parts, flat = append(parts, flat[:n]), flat[n:]
	}
	if len(flat) > 0 {
		parts = append(parts, flat)
	}
	return parts
}

func words(parts [][]byte) []string {
	s := make([]string, len(parts))
	for i, p := range parts {
		s[i] = string(p)
	}
	return s
}

// reference computes a digest as its documentation defines it.
func reference(secret []byte, parts [][]byte) []byte {
	var all []byte
	for _, p := range parts {
		all = append(binary.BigEndian.AppendUint64(all, uint64(len(p))), p...)
	}
	if len(secret) == 0 {
		s := sha256.Sum256(all)
		return s[:]
	}
	h := hmac.New(sha256.New, secret)
	h.Write(all)
	return h.Sum(nil)
}

// secretKey returns the key that HMAC (RFC 2104) derives from a secret: a long secret is hashed, a
// short one is padded with zeros. No secret means plain SHA-256.
func secretKey(secret []byte) string {
	if len(secret) == 0 {
		return "plain"
	}
	if len(secret) > sha256.BlockSize {
		s := sha256.Sum256(secret)
		secret = s[:]
	}
	return "keyed " + string(bytes.TrimRight(secret, "\x00"))
}

func seed(f *testing.F) {
	f.Helper()
	f.Add([]byte("abc"), []byte("abc"), []byte{2, 1}, []byte{1, 2}, []byte("secret"), []byte("secret"))
	f.Add([]byte("abc"), []byte("abc"), []byte{3}, []byte{3, 0}, []byte(""), []byte{0})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x01a"), []byte("a"), []byte{}, []byte{}, []byte("s"), []byte("s\x00"))
	f.Add([]byte(""), []byte("x"), []byte{}, []byte{0}, []byte(""), []byte("x"))
	f.Add(bytes.Repeat([]byte("x"), 250), []byte("x"), []byte{232, 8}, []byte{233, 0}, bytes.Repeat([]byte("k"), 64), bytes.Repeat([]byte("k"), 65))
}

// injective checks that sum has one value for each list of parts under each secret.
func injective(t *testing.T, flatA, flatB, cutsA, cutsB, one, two []byte, sum func(secret []byte, parts [][]byte) []byte) {
	t.Helper()
	lists := [][][]byte{cut(flatA, cutsA), cut(flatB, cutsB), cut(flatA, cutsB)} // the last one moves boundaries
	for _, secret := range [][]byte{nil, one, two} {
		for i, a := range lists {
			if got, want := sum(secret, a), reference(secret, a); !bytes.Equal(got, want) {
				t.Errorf("secret %q, parts %q: %x, want %x", secret, a, got, want)
			}
			for _, b := range lists[:i] {
				same := slices.EqualFunc(a, b, bytes.Equal)
				if got := bytes.Equal(sum(secret, a), sum(secret, b)); got != same {
					t.Errorf("secret %q, parts %q and %q: equal %v", secret, a, b, got)
				}
			}
		}
	}
	for _, a := range lists {
		same := secretKey(one) == secretKey(two)
		if got := bytes.Equal(sum(one, a), sum(two, a)); got != same {
			t.Errorf("secrets %q and %q, parts %q: equal %v", one, two, a, got)
		}
	}
}

// Two fingerprints are equal if and only if their lists of parts and their secrets are equal.
func FuzzFingerprint(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, flatA, flatB, cutsA, cutsB, one, two []byte) {
		injective(t, flatA, flatB, cutsA, cutsB, one, two, func(secret []byte, parts [][]byte) []byte {
			return idempotency.Fingerprint(secret, parts...)
		})
	})
}

// Two digests are equal if and only if their lists of parts and their secrets are equal.
func FuzzDigest(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, flatA, flatB, cutsA, cutsB, one, two []byte) {
		injective(t, flatA, flatB, cutsA, cutsB, one, two, func(secret []byte, parts [][]byte) []byte {
			d := idempotency.Digest(secret, words(parts)...)
			b, err := base64.RawURLEncoding.Strict().DecodeString(d)
			if err != nil || len(d) != 43 {
				t.Errorf("%q, %v", d, err)
			}
			return b
		})
	})
}

// Digests of short and long parts equal the reference, at all positions relative to the boundaries
// of internal buffers.
func TestDigestsOfAllSizes(t *testing.T) {
	flat := bytes.Repeat([]byte("0123456789abcdef"), 80)
	for _, secret := range [][]byte{nil, []byte("secret")} {
		for n := range 1100 {
			for _, parts := range [][][]byte{{flat[:n]}, {flat[:7], flat[:n], flat[:9], nil}, cut(flat[:n], []byte{10, 100, 230, 8, 240})} {
				want := reference(secret, parts)
				if got := idempotency.Fingerprint(secret, parts...); !bytes.Equal(got, want) {
					t.Fatalf("secret %q, %d bytes: fingerprint %x, want %x", secret, n, got, want)
				}
				if got, want := idempotency.Digest(secret, words(parts)...), base64.RawURLEncoding.EncodeToString(want); got != want {
					t.Fatalf("secret %q, %d bytes: digest %s, want %s", secret, n, got, want)
				}
			}
		}
	}
}

// Digest and Fingerprint do not modify a secret or a part.
func TestDigestsLeaveTheirInput(t *testing.T) {
	secret, part := []byte("secret"), bytes.Repeat([]byte("x"), 500)
	for range 2 {
		idempotency.Fingerprint(secret, part[:100], part[:400])
		idempotency.Fingerprint(nil, part[:100], part[:400])
	}
	if string(secret) != "secret" || !bytes.Equal(part, bytes.Repeat([]byte("x"), 500)) {
		t.Error("the input was changed")
	}
}

// A digest costs one allocation, its result, because each replay computes one.
func TestDigestAllocations(t *testing.T) {
	parts := cut(bytes.Repeat([]byte("x"), 600), []byte{4, 20, 0, 16})
	strings := words(parts)
	if n := testing.AllocsPerRun(100, func() { fingerprint = idempotency.Fingerprint(nil, parts...) }); n > 1 {
		t.Errorf("a fingerprint costs %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { digest = idempotency.Digest(nil, strings...) }); n > 1 {
		t.Errorf("a digest costs %v allocations", n)
	}
}

var ( // package variables, so that the compiler does not remove the calls
	fingerprint []byte
	digest      string
)
