package lockcore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// asked is a ctx that does something the at-th time it is asked whether it has ended.
type asked struct {
	context.Context //nolint:containedctx // it is one
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

// patient claims a key that must not look abandoned.
var patient = lockcore.Claim{Terms: lockcore.Terms{Wait: 10 * time.Minute}, AtMostOnce: true}

// atEachErr plays a scenario in a bubble for each time that the first call's ctx is asked, as long as there are more.
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
			t.Errorf("inconclusive: asked %d times", at-1)
		}
	}
}

// A process that pauses for longer than the lease, wherever that is between its call and its run, does not take its own grant, which ran out
// meanwhile, for a run of anybody; not even if what takes it back is late.
func TestGrantPaused(t *testing.T) {
	atEachErr(t, func(t *testing.T, w *world, ctx asked) {
		l, faults, _ := w.locker(lockcore.Options{})
		w.giveOnce(l)
		ctx.do = func() {
			faults.Down() // the watchdog is paused too
			time.Sleep(40 * time.Second)
			faults.Heal()
			faults.LoseRequest(locktest.Script("leave"))
		}
		le, _, err := l.Claim(ctx, "k", patient)
		if err != nil {
			t.Fatalf("paused at %d: %v", ctx.at, err)
		}
		if le.Attempt() != 1 {
			t.Errorf("paused at %d: run %d, want 1", ctx.at, le.Attempt())
		}
		_ = le.Release(t.Context())
	})
}

// A grant whose call has ended is no run to the next in line either, not even if Redis goes away before it hears of that.
func TestGrantUnwanted(t *testing.T) {
	unwanted := false
	atEachErr(t, func(t *testing.T, w *world, ctx asked) {
		l, faults, _ := w.locker(lockcore.Options{})
		w.giveOnce(l)
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
		if le != nil { // it was not asked any more, or has begun
			_ = le.Release(t.Context())
		}
		if ctx.times.Load() < ctx.at {
			return
		}
		unwanted = unwanted || le == nil
		if err := <-next; err != nil {
			t.Errorf("canceled at %d: %v", ctx.at, err)
		}
	})
	if !unwanted {
		t.Error("inconclusive: every call has run")
	}
}
