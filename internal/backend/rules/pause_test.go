package rules_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// After the clock was set back, a pause lasts at most as long as it was meant to, and its end does not
// move with the clock.
// Shows: V6
func TestPauseClock(t *testing.T) {
	minute := time.Minute.Microseconds()
	k := rules.Key{Paused: 100 * minute, PauseLength: minute, PauseReason: "429", Expires: 200 * minute}
	of := &backend.Key{Kind: backend.KindExclusive, Name: "k"}
	e := rules.Env{Now: minute, Locker: "l", Listeners: func(string) int { return 1 }}
	for i := range int64(2) {
		e.Now = (1 + i/2) * minute
		var reply backend.AcquireReply
		if k, reply, _ = rules.Acquire(k, &backend.AcquireRequest{Key: of, ID: "id", Lease: time.Second, Retention: time.Hour}, e); reply.Remaining != time.Minute || k.Paused != 2*minute {
			t.Errorf("paused until %d, for another %v", k.Paused, reply.Remaining)
		}
	}
}
