package redis_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// force ends the hold of mismatch, if it has this token and was renewed that long ago.
func force(token any, silent time.Duration) call {
	return call{Script: wire.ForceClear, make: func(k *backend.Key) wire.Command {
		return sender(mine).ForceClear(&backend.ForceClearRequest{Key: k, Locker: listener, Silent: silent}, id("F"))
	}}.with("token", token)
}

// force_clear.lua refuses a lease that was renewed too recently. The last renewal is d before x. If d
// or x is absurd, it counts as recent.
func TestScriptForceClearSilence(t *testing.T) {
	onEach(t, func(b *oneKey) {
		held := func(left, length any) fields {
			return states()["other's"].with(fields{"x": left, "d": length, "t": 4711})
		}
		b.set(held(rel(time.Minute), span(time.Hour))) // renewed 59 minutes ago
		b.wantReply(force(4711, time.Hour), 0, span(time.Minute))
		b.like(held(rel(time.Minute), span(time.Hour)))
		b.wantReply(force(4711, 58*time.Minute), 1)
		for _, f := range []fields{held("9223372036854775807", span(time.Hour)), held("9223372036854775807", "9223372036854775807"), held(rel(20*time.Hour), span(time.Minute))} {
			b.set(f)
			b.wantReply(force(4711, time.Minute), 0, span(time.Minute))
		}
		b.set(held(rel(time.Minute), "x"))
		if reply, err := b.try(force(4711, 0)); err == nil {
			b.Errorf("a lease that cannot be read: %v", reply)
		}
	})
}
