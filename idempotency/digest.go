package idempotency

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
)

// Fingerprint returns 32 bytes that distinguish payloads: the HMAC-SHA-256 of the parts with
// secret, or the SHA-256 if secret is empty. Each part is prefixed with its length, so the same
// bytes divided in another way have another fingerprint.
//
// A reader of a fingerprint without a secret can test guesses of the payload. A secret prevents
// that. Do not change the secret while records that were made with it are kept.
func Fingerprint(secret []byte, parts ...[]byte) []byte {
	s := sum(secret, parts)
	return s[:]
}

// Digest returns a key made from parts that must not be stored unchanged, such as a principal or a
// client's key. It is the HMAC-SHA-256 of the parts with secret, or the SHA-256 if secret is empty,
// as 43 characters of base64url. Each part is prefixed with its length.
//
// Without a secret, the digest of known parts can be computed. A secret prevents that. Do not
// change the secret while records with such keys are kept.
func Digest(secret []byte, parts ...string) string {
	s := sum(secret, parts)
	var text [43]byte
	base64.RawURLEncoding.Encode(text[:], s[:])
	return string(text[:])
}

// small bounds the length of parts that sum collects on the stack: those of a key, or of a request
// with a small body.
const small = 1 << 10

// sum does not allocate in the common case, because each replay calls it.
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
	b := make([]byte, 0, 256) // prefixes and short parts, with room for one more prefix; then the sum
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
