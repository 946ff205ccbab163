package redis_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/internal/backend/redis"
)

// Unescape reverses Escape, and does not panic on other text.
func TestUnescape(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := string(rapid.SliceOf(rapid.Byte()).Draw(t, "key"))
		if got := redis.Unescape(redis.Escape(key)); got != key {
			t.Errorf("%q is read back as %q", key, got)
		}
	})
	for _, odd := range []string{"%", "%G1", "%4", "%%41", ""} {
		redis.Unescape(odd)
	}
}
