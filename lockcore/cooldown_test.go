package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A released key is cooling until the end of MinHold: for calls of the same process and of others,
// for waiters and for new calls. Then it is free, and not abandoned.
// Shows: L4
func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		terms := lockcore.Terms{MinHold: 10 * time.Second, Wait: time.Minute}
		start := time.Now()
		le := w.Must(l.Acquire(t.Context(), "k", terms))
		var wg sync.WaitGroup
		var at [2]time.Duration
		for i, from := range []*lockcore.Locker{l, other} {
			wg.Go(func() {
				le, err := from.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
				if err != nil || le.Abandoned() {
					t.Errorf("%v, want the key, not abandoned", err)
					return
				}
				at[i] = time.Since(start)
				_ = le.Release(t.Context())
			})
		}
		time.Sleep(time.Second)
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		for _, from := range []*lockcore.Locker{l, other} {
			var busy *lockcore.BusyError
			if _, err := from.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); !errors.As(err, &busy) || busy.Remaining > 7*time.Second {
				t.Errorf("%v, want BusyError with Remaining of at most 7s", err)
			}
		}
		if h, err := other.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.State != lockcore.StateCooling || h.Remaining > 7*time.Second || h.Remaining < 6*time.Second {
			t.Errorf("while it cools: %+v, %v", h, err)
		}
		wg.Wait()
		first, second := min(at[0], at[1]), max(at[0], at[1])
		if first < 10*time.Second || first > 10*time.Second+500*time.Millisecond || second > 13*time.Second {
			t.Errorf("granted after %v and %v", first, second)
		}
	})
}

// A hold lasts longer than MinHold. It is released, and handed off, as without MinHold.
func TestMinHoldIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{MinHold: time.Millisecond}))
		time.Sleep(2 * time.Millisecond)
		next := make(chan *lockcore.Lease)
		go func() {
			le, _ := l.Acquire(t.Context(), "k", lockcore.Terms{})
			next <- le
		}()
		synctest.Wait()
		count.Reset()
		_ = le.Release(t.Context())
		le = <-next
		if sent := count.Commands(); len(sent) != 0 {
			t.Errorf("the hand-off sent %v", sent)
		}
		_ = le.Release(t.Context())
	})
}

// After a failed run a once key is cooling. After a completed one its record is returned at once.
func TestMinHoldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		claim := lockcore.Claim{Terms: lockcore.Terms{MinHold: time.Minute, Wait: lockcore.NoWait}}
		le, _, err := l.Claim(t.Context(), "k", claim)
		if err != nil {
			t.Fatal(err)
		}
		_ = le.Release(t.Context())
		if _, _, err := l.Claim(t.Context(), "k", claim); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a claim while the key cools: %v, want ErrBusy", err)
		}
		time.Sleep(time.Minute)
		le, _, err = l.Claim(t.Context(), "k", claim)
		if err != nil || le.Attempt() != 2 {
			t.Fatal(err)
		}
		_ = le.Complete(t.Context(), []byte("r"), time.Hour)
		if _, rec, err := l.Claim(t.Context(), "k", claim); err != nil || rec == nil {
			t.Errorf("a claim of a done key: %v, %v, want its record", rec, err)
		}
	})
}

// The command that releases a key with MinHold is lost and sent again. The key is not kept longer
// than MinHold.
// Shows: L4
func TestMinHoldLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		start := time.Now()
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{MinHold: 10 * time.Second}))
		faults.LoseRequest(faulty.Script("release"))
		_ = le.Release(t.Context())
		next := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute}))
		if d := time.Since(start); d < 10*time.Second || d > 10*time.Second+500*time.Millisecond || next.Abandoned() {
			t.Errorf("granted after %v", d)
		}
		_ = next.Release(t.Context())
	})
}

// Clear frees a cooling key.
func TestMinHoldClear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{MinHold: time.Hour}))
		_ = le.Release(t.Context())
		if err := l.Clear(t.Context(), event.KindExclusive, "k"); err != nil {
			t.Fatal(err)
		}
		_ = w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait})).Release(t.Context())
	})
}

// A handler that does not call Beat for Stall loses its key, like at MaxHold. A handler that calls
// Beat keeps its key, and the keys of the holds around it.
// Shows: L3
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		terms := lockcore.Terms{Stall: 10 * time.Second}
		outer := w.Must(l.Acquire(t.Context(), "outer", terms))
		inner := w.Must(l.Acquire(outer.Context(), "inner", terms))
		for range 20 {
			time.Sleep(9 * time.Second)
			lockcore.Beat(inner.Context())
		}
		last := time.Now()
		if outer.Context().Err() != nil || inner.Context().Err() != nil {
			t.Fatal(context.Cause(inner.Context()))
		}
		<-inner.Context().Done()
		if d := time.Since(last); d != 10*time.Second || !errors.Is(context.Cause(inner.Context()), lockcore.ErrStalled) {
			t.Errorf("after %v: %v", d, context.Cause(inner.Context()))
		}
		<-outer.Context().Done()
		lockcore.Beat(inner.Context()) // too late
		next := w.Must(other.Acquire(t.Context(), "outer", lockcore.Terms{Wait: time.Hour}))
		if d := time.Since(last); d > 40*time.Second+250*time.Millisecond || !next.Abandoned() {
			t.Errorf("free after %v, abandoned %v", d, next.Abandoned())
		}
		if err := inner.Release(t.Context()); !errors.Is(err, lockcore.ErrStalled) {
			t.Error(err)
		}
		if err := outer.Release(t.Context()); !errors.Is(err, lockcore.ErrStalled) {
			t.Error(err)
		}
		_ = next.Release(t.Context())
		lockcore.Beat(t.Context()) // a ctx without a hold
	})
}

// Each hold of a batch has its own Stall.
// Shows: L3
func TestStallInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		first := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		next := make(chan *lockcore.Lease)
		go func() {
			le, _ := l.Acquire(t.Context(), "k", lockcore.Terms{Stall: time.Second})
			next <- le
		}()
		synctest.Wait()
		_ = first.Release(t.Context())
		le, start := <-next, time.Now()
		<-le.Context().Done()
		if d := time.Since(start); d != time.Second || !errors.Is(context.Cause(le.Context()), lockcore.ErrStalled) {
			t.Errorf("after %v: %v", d, context.Cause(le.Context()))
		}
		_ = le.Release(t.Context())
	})
}

// A key is cooling. BusyError has no holder, whether the call began before or after the release,
// and RetryAfter is the rest of MinHold, at most a minute.
func TestCoolingHasNoHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{MinHold: 10 * time.Minute}))
		before := make(chan error, 1)
		go func() {
			_, err := other.Acquire(t.Context(), "k", lockcore.Terms{Wait: 5 * time.Second})
			before <- err
		}()
		time.Sleep(time.Second)
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		_, after := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Second})
		for when, err := range map[string]error{"before": <-before, "after": after} {
			busy, ok := errors.AsType[*lockcore.BusyError](err)
			if !ok || busy.Holder != (event.Holder{}) || busy.HeldFor != 0 || busy.RetryAfter() != time.Minute || !strings.Contains(err.Error(), "it is kept for another") {
				t.Errorf("a call that began %s the release: %v, %+v", when, err, busy)
			}
		}
	})
}
