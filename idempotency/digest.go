package idempotency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
)

// Fingerprint tells one payload from another: 32 bytes, HMAC-SHA-256 under secret, or plain SHA-256 if secret is empty, over the
// length-prefixed parts, so that no two lists of parts give the same bytes by moving a boundary. Whoever can guess a payload can
// check the guess against a plain fingerprint; a secret prevents that. It must not change while records made with it are kept.
func Fingerprint(secret []byte, parts ...[]byte) []byte {
	s := sum(secret, parts)
	return s[:]
}

// Digest makes a key of parts that must not be stored as they are (a principal, a client's key): HMAC-SHA-256 under
// secret, or plain SHA-256 if secret is empty, over the length-prefixed parts, as 43 characters of base64url. Whoever knows
// the parts can compute a plain digest; a secret prevents that. It must not change while records made with it are kept.
func Digest(secret []byte, parts ...string) string {
	s := sum(secret, parts)
	var text [43]byte
	base64.RawURLEncoding.Encode(text[:], s[:])
	return string(text[:])
}

// small is what is put together on the stack: the parts of a key, or of a request with a small body.
const small = 1 << 10

// sum is on the way of every replay, so the common case allocates nothing.
func sum[T string | []byte](secret []byte, parts []T) [sha256.Size]byte {
	n := 0
	for _, p := range parts {
		n += 8 + len(p)
	}
	if len(secret) > 0 || n > small {
		return stream(secret, parts)
	}
	var buf [small]byte
	b := buf[:0]
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p))) //planted:length-of-part
		b = append(b, p...)
	}
	return sha256.Sum256(b)
}

func stream[T string | []byte](secret []byte, parts []T) [sha256.Size]byte {
	var h hash.Hash
	if len(secret) > 0 {
		h = hmac.New(sha256.New, secret)
	} else {
		h = sha256.New()
	}
	b := make([]byte, 0, 256) // collects prefixes and short parts, with room for one more prefix; then the sum
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(b, uint64(len(p)))
		if len(b)+len(p)+8 > cap(b) {
			h.Write(b)
			h.Write([]byte(p))
			b = b[:0]
			continue
		}
		b = append(b, p...)
	}
	h.Write(b)
	return [sha256.Size]byte(h.Sum(b[:0]))
}
