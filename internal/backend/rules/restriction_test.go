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
	k, _ := rules.Restrict(rules.Key{}, backend.Restriction{Limit: 1, For: time.Hour, Reason: "night"}, "OPERATION", e)
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
