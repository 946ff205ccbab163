package lockcore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// With a server away, the holder learns at once that an operator has ended its lease, although only
// the notification and not the next renewal comes soon.
func TestQuorumForced(t *testing.T) {
	for _, ill := range []mode{well, away, silent} {
		synctest.Test(t, func(t *testing.T) {
			s := newServers(t, 3)
			s[1].set(ill)
			o := lockcore.Options{Terms: lockcore.Terms{Lease: time.Hour}}
			l, operator := s.locker(t, o), s.locker(t, o)
			le, err := l.Acquire(t.Context(), "k", noWait)
			ok(t, err)
			time.Sleep(3 * time.Second) // the holder subscribes after a second
			h, err := operator.Inspect(t.Context(), event.KindExclusive, "k")
			ok(t, err)
			ok(t, operator.ForceClearEvenAlive(t.Context(), event.KindExclusive, "k", h))
			select {
			case <-le.Context().Done():
			case <-time.After(3 * time.Second):
				t.Errorf("mode %d: the holder does not learn of it", ill)
			}
			_ = le.Release(t.Context())
		})
	}
}

// Inspect returns the token of the majority, not that of a server that granted it late. So a clear
// that compares it is not refused.
func TestQuorumClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t, 3)
		for range 50 {
			l := s.locker(t, lockcore.Options{}) // a new one does not know the clocks of the servers
			le, err := l.Acquire(t.Context(), "k", lockcore.Terms{MinHold: time.Hour})
			ok(t, err)
			h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
			if err != nil || h.Token != le.Token() {
				t.Errorf("token %d, %v, want %d", h.Token, err, le.Token())
			}
			ok(t, le.Release(t.Context()))
			time.Sleep(10 * time.Millisecond) // for the third server
			if h, err = l.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.State != lockcore.StateCooling {
				t.Errorf("%+v, %v", h, err)
			}
			ok(t, l.ClearIfUnchanged(t.Context(), event.KindExclusive, "k", h))
		}
	})
}
