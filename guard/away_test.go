package guard_test

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// awayAfterGrant loses the reply to the next grant, and then makes Redis unavailable for that
// time.
func (f *fixture) awayAfterGrant(away time.Duration) {
	granted := f.faults.LoseReply(faulty.Script("acquire"))
	go func() { // ends with the bubble
		<-granted.Replied()
		f.faults.Down()
		time.Sleep(away)
		f.faults.Heal()
	}()
}

// Redis grants a key, the reply is lost, and Redis is unavailable for up to longer than the lease.
// No handler ran, so the key is not abandoned: neither for the call, which still waits, nor for a
// redelivery.
// Shows: O3
func TestOnceGrantUnheard(t *testing.T) {
	for name, c := range map[string]struct {
		terms lockcore.Terms
		away  time.Duration
	}{
		"the same call":        {lockcore.Terms{Wait: 10 * time.Minute}, 40 * time.Second},
		"with a short lease":   {lockcore.Terms{Wait: 3 * time.Second, Lease: time.Second}, 1200 * time.Millisecond},
		"it gives up":          {lockcore.Terms{}, 20 * time.Second},
		"it gives up for long": {lockcore.Terms{}, 40 * time.Minute},
	} {
		for mode, says := range map[guard.Mode]string{guard.AtLeastOnce: "at least once", guard.AtMostOnce: "at most once"} {
			t.Run(name+", "+says, func(t *testing.T) {
				inBubble(t, func(t *testing.T, f *fixture) {
					o := guard.OnceOptions{Mode: mode, Terms: c.terms}
					_, _ = guard.Once(t.Context(), f.locks, "scripts are known", o, nothing)
					f.awayAfterGrant(c.away)
					out, err := guard.Once(t.Context(), f.locks, "k", o, nothing)
					if c.terms.Wait == 0 {
						if err == nil {
							t.Error("inconclusive: the call received its grant")
						}
						time.Sleep(c.away + 2*time.Second)
						out, err = guard.Once(t.Context(), f.other, "k", o, nothing)
					}
					if err != nil || out != guard.Ran {
						t.Errorf("%v, %v", out, err)
					}
				})
			})
		}
	}
}

// A run fails while Redis is unavailable for longer than the lease. The key is not abandoned once
// Redis has received the release.
// Shows: O3
func TestOnceFailureWhileAway(t *testing.T) {
	for name, mode := range map[string]guard.Mode{"at least once": guard.AtLeastOnce, "at most once": guard.AtMostOnce} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				o := guard.OnceOptions{Mode: mode}
				_, _ = guard.Once(t.Context(), f.locks, "k", o, func(context.Context) error {
					f.faults.Down()
					return guard.NoEffect(errBoom)
				})
				time.Sleep(40 * time.Minute)
				f.faults.Heal()
				time.Sleep(2 * time.Second)
				if out, err := guard.Once(t.Context(), f.other, "k", o, nothing); err != nil || out != guard.Ran {
					t.Errorf("%v, %v", out, err)
				}
			})
		})
	}
}

// The reply to a completion is lost, and then Redis loses the hold and the record, as in a
// failover. The Locker reports CompletionFailed.
// Shows: O2
func TestOnceCompletionForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		out, err := guard.Once(t.Context(), f.locks, "k", guard.OnceOptions{}, func(context.Context) error { f.faults.Down(); return nil })
		if err != nil || out != guard.Ran {
			t.Errorf("%v, %v", out, err)
		}
		f.memory.Redis.FlushAll()
		f.faults.Heal()
		time.Sleep(5 * time.Second)
		if !heard[event.CompletionFailed](f.events) {
			t.Error("no event CompletionFailed")
		}
	})
}
