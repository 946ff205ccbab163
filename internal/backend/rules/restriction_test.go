package rules_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/rules"
)

// If the clock is set back, a restriction lasts no longer than it would have from then on.
// Shows: V7
func TestRestrictionClock(t *testing.T) {
	e := rules.Env{Now: 1e15, Locker: "L", Listeners: func(string) int { return 1 }}
	k, _ := rules.Restrict(rules.Key{}, &backend.Key{Name: "k"}, backend.Restriction{Limit: 1, For: time.Hour, Reason: "night"}, "OPERATION", e)
	e.Now -= (10 * time.Hour).Microseconds()
	for _, want := range []time.Duration{time.Hour, time.Minute, 0} {
		e.Now += (time.Hour - want).Microseconds()
		var s backend.Status
		if k, s = rules.Inspect(k, backend.KindExclusive, backend.NoRecord, e); s.Restriction.For != want {
			t.Errorf("%v of the restriction are left, want %v", s.Restriction.For, want)
		}
		e.Now -= (time.Hour - want).Microseconds()
	}
}

// If the clock is set back, the bucket of a restriction is full again no later than it would have been.
// Shows: V7
func TestRestrictionBucketClock(t *testing.T) {
	e := rules.Env{Now: 1e15, Locker: "L", Listeners: func(string) int { return 1 }}
	rate := backend.Rate{N: 1, Per: time.Minute, Burst: 1}
	k, _ := rules.Restrict(rules.Key{}, &backend.Key{Name: "k"}, backend.Restriction{Rate: rate, For: time.Hour, Reason: "night"}, "OPERATION", e)
	r := backend.AcquireRequest{ID: "CALL", Key: &backend.Key{Kind: backend.KindExclusive, Name: "key"}}
	r.Share.Rate = backend.Rate{N: 100, Per: time.Second, Burst: 10, Cost: 1}
	for _, want := range []time.Duration{0, time.Minute, time.Minute} {
		var reply backend.AcquireReply
		if k, reply, _ = rules.Acquire(k, &r, e); reply.Remaining != want {
			t.Errorf("the reply is %+v, want %v", reply, want)
		}
		e.Now -= (10 * time.Hour).Microseconds()
	}
}
