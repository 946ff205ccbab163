package lockcore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// asked is a ctx whose Err calls do once, in its call number at.
type asked struct {
	context.Context //nolint:containedctx // asked is a ctx itself
	at              int32
	times           *atomic.Int32
	do              func()
}

func (a asked) Err() error {
	if a.times.Add(1) == a.at {
		a.do()
	}
	return a.Context.Err()
}

// patient claims a key that must not be abandoned.
var patient = lockcore.Claim{Terms: lockcore.Terms{Wait: 10 * time.Minute}, AtMostOnce: true}

// atEachErr runs a scenario in a bubble once for each call of Err of the first ctx.
func atEachErr(t *testing.T, scenario func(t *testing.T, w *world, first asked)) {
	t.Helper()
	testlevel.InMemory(t)
	for at, more := int32(1), true; more; at++ {
		synctest.Test(t, func(t *testing.T) {
			first := asked{t.Context(), at, new(atomic.Int32), nil}
			scenario(t, newWorld(t), first)
			more = first.times.Load() >= at
		})
		if !more && at < 3 {
			t.Errorf("inconclusive: Err was called %d times", at-1)
		}
	}
}

// A process stops for longer than the lease, at any point between its call and its run. Its own
// grant expires meanwhile. This grant does not count as an abandoned run, also if the first
// withdrawal is lost.
// Shows: R2, O3
func TestGrantPaused(t *testing.T) {
	atEachErr(t, func(t *testing.T, w *world, ctx asked) {
		l, faults, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		ctx.do = func() {
			faults.Down() // the watchdog is paused too
			time.Sleep(40 * time.Second)
			faults.Heal()
			faults.LoseRequest(faulty.Script("leave"))
		}
		le, _, err := l.Claim(ctx, "k", patient)
		if err != nil {
			t.Fatalf("paused at call %d of Err: %v", ctx.at, err)
		}
		if le.Attempt() != 1 {
			t.Errorf("paused at call %d of Err: attempt %d, want 1", ctx.at, le.Attempt())
		}
		_ = le.Release(t.Context())
	})
}

// A call ends while its grant arrives, and Redis becomes unavailable before the withdrawal. For the
// next waiter this grant does not count as an abandoned run.
// Shows: O3
func TestGrantUnwanted(t *testing.T) {
	unwanted := false
	atEachErr(t, func(t *testing.T, w *world, ctx asked) {
		l, faults, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		begun, cancel := context.WithCancel(ctx.Context)
		defer cancel()
		next := make(chan error, 1)
		ctx.Context, ctx.do = begun, func() {
			go func() {
				le, _, err := l.Claim(t.Context(), "k", patient)
				if le != nil {
					_ = le.Release(t.Context())
				}
				next <- err
			}()
			synctest.Wait()
			faults.Down()
			cancel()
			time.AfterFunc(2*time.Minute, faults.Heal)
		}
		le, _, _ := l.Claim(ctx, "k", patient)
		if le != nil { // Err was not called again, or the run has begun
			_ = le.Release(t.Context())
		}
		if ctx.times.Load() < ctx.at {
			return
		}
		unwanted = unwanted || le == nil
		if err := <-next; err != nil {
			t.Errorf("canceled at call %d of Err: %v", ctx.at, err)
		}
	})
	if !unwanted {
		t.Error("inconclusive: every call has run")
	}
}
