package idempotency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
)

// Fingerprint tells one payload from another: the 32 bytes of SHA-256 over its length-prefixed parts, so that no two lists of parts give
// the same bytes by moving a boundary.
func Fingerprint(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		writePart(h, p)
	}
	return h.Sum(nil)
}

// Digest makes a key of parts that must not be stored as they are (a principal, a client's key): HMAC-SHA-256 under
// secret, or plain SHA-256 if secret is empty, over the length-prefixed parts, as 43 characters of base64url. Whoever knows
// the parts can compute a plain digest; a secret prevents that. It must not change while records made with it are kept.
func Digest(secret []byte, parts ...string) string {
	var h hash.Hash
	if len(secret) > 0 {
		h = hmac.New(sha256.New, secret)
	} else {
		h = sha256.New()
	}
	for _, p := range parts {
		writePart(h, []byte(p))
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

func writePart(h hash.Hash, p []byte) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(p)))
	h.Write(n[:])
	h.Write(p)
}
