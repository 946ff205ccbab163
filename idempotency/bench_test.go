package idempotency_test

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/idempotency"
)

// keyParts are the parts that httpmw uses: scope, method, path and the client's key.
var keyParts = []string{"http", "tenant-4711", "POST", "/v1/accounts/42/charges", "6b1f6c3e-94a8-4a3e-8f0c-6d1f1f0e2a77"}

var secrets = map[string][]byte{"plain": nil, "keyed": []byte(strings.Repeat("s", 32))}

func BenchmarkDigest(b *testing.B) {
	for name, secret := range secrets {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				idempotency.Digest(secret, keyParts...)
			}
		})
	}
}

func BenchmarkFingerprint(b *testing.B) {
	for body, n := range map[string]int{"200 B": 200, "4 KiB": 4 << 10, "1 MiB": 1 << 20} {
		parts := [][]byte{[]byte("POST"), []byte("/v1/accounts/42/charges"), nil, []byte("application/json"), make([]byte, n)}
		for name, secret := range secrets {
			b.Run(name+"/"+body, func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for b.Loop() {
					idempotency.Fingerprint(secret, parts...)
				}
			})
		}
	}
}
