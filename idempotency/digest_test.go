package idempotency_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/idempotency"
)

// Two lists of parts have equal digests, and equal fingerprints, only if the lists are equal. A
// moved boundary or an omitted empty part changes both.
func TestDigestsTellListsApart(t *testing.T) {
	parts := rapid.SliceOfN(rapid.StringMatching("[ab\x00\x01]{0,3}"), 0, 4) // few letters, so that the lists often have equal concatenations
	rapid.Check(t, func(t *rapid.T) {
		a, b := parts.Draw(t, "a"), parts.Draw(t, "b")
		secret := []byte(rapid.SampledFrom([]string{"", "s"}).Draw(t, "secret"))
		same := slices.Equal(a, b)
		if got := idempotency.Digest(secret, a...) == idempotency.Digest(secret, b...); got != same {
			t.Errorf("digests of %q and %q are equal: %v", a, b, got)
		}
		if got := bytes.Equal(idempotency.Fingerprint(secret, raw(a)...), idempotency.Fingerprint(secret, raw(b)...)); got != same {
			t.Errorf("fingerprints of %q and %q are equal: %v", a, b, got)
		}
	})
}

// Shows: H2
func TestMovedBoundaries(t *testing.T) {
	lists := [][]string{{"ab", "c"}, {"a", "bc"}, {"abc"}, {"abc", ""}, {"", "abc"}, {"a", "b", "c"}, {}, {""}, {"", ""}}
	seen := map[string][]string{}
	for _, l := range lists {
		d := idempotency.Digest(nil, l...)
		if other, ok := seen[d]; ok {
			t.Errorf("%q and %q have one digest", l, other)
		}
		seen[d] = l
	}
}

// The digest of given parts must not change, because stored keys contain it. The test computes it a
// second time, independently.
func TestDigestIsStable(t *testing.T) {
	const input = "\x00\x00\x00\x00\x00\x00\x00\x04http\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01k"
	plain := sha256.Sum256([]byte(input))
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte(input))
	for _, row := range []struct{ got, want string }{
		{idempotency.Digest(nil, "http", "", "k"), base64.RawURLEncoding.EncodeToString(plain[:])},
		{idempotency.Digest([]byte{}, "http", "", "k"), base64.RawURLEncoding.EncodeToString(plain[:])},
		{idempotency.Digest([]byte("secret"), "http", "", "k"), base64.RawURLEncoding.EncodeToString(mac.Sum(nil))},
		{string(idempotency.Fingerprint(nil, []byte("http"), nil, []byte("k"))), string(plain[:])},
		{string(idempotency.Fingerprint([]byte{}, []byte("http"), nil, []byte("k"))), string(plain[:])},
		{string(idempotency.Fingerprint([]byte("secret"), []byte("http"), nil, []byte("k"))), string(mac.Sum(nil))},
	} {
		if row.got != row.want {
			t.Errorf("got %q, want %q", row.got, row.want)
		}
	}
	if d := idempotency.Digest(nil, strings.Repeat("x", 1000)); len(d) != 43 {
		t.Errorf("%q has %d characters", d, len(d))
	}
}

func raw(parts []string) [][]byte {
	b := make([][]byte, len(parts))
	for i, p := range parts {
		b[i] = []byte(p)
	}
	return b
}
