package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// busyLockers starts n Lockers. On each, many goroutines acquire and release one key and keep it
// for hold. It returns the number of holds of each Locker, and a function that stops the
// goroutines.
func busyLockers(t *testing.T, w *world, n, goroutines int, hold time.Duration) (shares func() []int64, stop func()) {
	t.Helper()
	counts := make([]atomic.Int64, n)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range counts {
		l, _, _ := w.Locker(lockcore.Options{})
		for range goroutines {
			wg.Go(func() {
				for ctx.Err() == nil {
					le, err := l.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever})
					if err != nil {
						if !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
					counts[i].Add(1)
					if hold > 0 {
						time.Sleep(hold)
					}
					if err := le.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	shares = func() []int64 {
		shares := make([]int64, n)
		for i := range counts {
			shares[i] = counts[i].Load()
		}
		return shares
	}
	return shares, func() { cancel(); wg.Wait() }
}

// Processes with the same work get the key equally often. The test counts holds, however long they
// take on a slow machine. More holds make random differences smaller.
// Shows: W2
func TestTurnsShares(t *testing.T) {
	testlevel.Campaign(t)
	for _, hold := range []time.Duration{0, 500 * time.Microsecond} {
		w := realWorld(t)
		shares, stop := busyLockers(t, w, 4, 16, hold)
		even := func() bool {
			sum := int64(0)
			for _, n := range shares() {
				sum += n
			}
			return sum >= 2000 && float64(slices.Min(shares())) >= 0.8*float64(sum)/4
		}
		time.Sleep(2 * time.Second)
		eventually(t, "an even distribution of 2,000 holds", even)
		stop()
		t.Logf("holds of %v: %d", hold, shares())
	}
}

// A process with one waiter competes with a process that has a thousand. It gets the key within two
// batches. A batch ends after 5 ms and the hold that runs then, so after six holds of 1 ms. The
// test counts holds, because their duration depends on the machine.
// Shows: W5
func TestTurnsBounded(t *testing.T) {
	testlevel.Campaign(t)
	w := realWorld(t)
	theirs, stop := busyLockers(t, w, 1, 1000, time.Millisecond)
	l, _, _ := w.Locker(lockcore.Options{})
	eventually(t, "100 holds of the other process", func() bool { return theirs()[0] > 100 })
	var waits []int64 // holds of the other process while the one waiter waits
	for range 100 {
		before := theirs()[0]
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute}))
		waits = append(waits, theirs()[0]-before)
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	stop()
	slices.Sort(waits)
	p50, p90 := waits[len(waits)/2], waits[len(waits)*9/10]
	t.Logf("%d waits, %d holds of the other process; its holds during a wait: p50 %d, p90 %d, most %d", len(waits), theirs()[0], p50, p90, waits[len(waits)-1])
	if p50 > 20 || p90 > 60 || theirs()[0] < int64(len(waits)) {
		t.Errorf("%d waits: holds of the other process during a wait: p50 %d, p90 %d", len(waits), p50, p90)
	}
}

// lineUp returns when n requests are in the queue of "k" in Redis.
func lineUp(t *testing.T, l *lockcore.Locker, n int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
		if err != nil || time.Now().After(end) {
			t.Fatalf("%d requests in the queue, want %d: %v", h.Queue, n, err)
		}
		if h.Queue == n {
			return
		}
	}
}

// inTime runs a subtest in a bubble.
func inTime(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// A key is released for a process in the remote queue. No other call gets it before: not of the
// previous holder, not of its waiters, not of a third process, with or without waiting.
// Shows: W4
func TestTurnsNoBarging(t *testing.T) {
	for name, waiting := range map[string]int{"released": 0, "batch over": 3} {
		inTime(t, name, func(t *testing.T) {
			w := newWorld(t)
			a, _, _ := w.Locker(lockcore.Options{})
			b, faults, _ := w.Locker(lockcore.Options{})
			third, _, _ := w.Locker(lockcore.Options{})
			var last atomic.Int64 // token
			var calls sync.WaitGroup
			take := func(l *lockcore.Locker, terms lockcore.Terms, who string, first bool) {
				le, err := l.Acquire(t.Context(), "k", terms)
				if err != nil {
					if !errors.Is(err, lockcore.ErrBusy) {
						t.Errorf("%s: %v", who, err)
					}
					return
				}
				if before := last.Swap(le.Token()); before == 0 != first {
					t.Errorf("%s got the key before its turn", who)
				}
				if err := le.Release(t.Context()); err != nil {
					t.Errorf("%s: %v", who, err)
				}
			}
			le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
			w.Redis.ScriptFlush(t.Context()) // the source of the script shows its name to the faults
			calls.Go(func() { take(b, lockcore.Terms{Wait: time.Minute}, "the waiter in the remote queue", true) })
			lineUp(t, a, 1)
			for i := range waiting {
				calls.Go(func() { take(a, lockcore.Terms{Wait: time.Minute}, fmt.Sprint("waiter ", i), false) })
			}
			time.Sleep(20 * time.Millisecond) // until they wait, and the batch has ended
			f := faults.Hold(faulty.Script("acquire"))
			_ = le.Release(t.Context())
			for n := range 10 {
				for who, l := range map[string]*lockcore.Locker{"the previous holder": a, "a third process": third} {
					take(l, noWait, who, false)
					if n == 0 {
						calls.Go(func() { take(l, lockcore.Terms{Wait: time.Minute}, who+", waiting", false) })
					}
				}
			}
			h, err := third.Inspect(t.Context(), event.KindExclusive, "k")
			if err != nil || h.State != lockcore.StateReserved {
				t.Errorf("inconclusive: the key is %v, want reserved (%v)", h.State, err)
			}
			f.Deliver()
			calls.Wait()
		})
	}
}

// A later call of a process gets the key later, whatever its terms. No new call overtakes a waiter,
// with NoWait or without.
// Shows: W1
func TestTurnsNoOvertaking(t *testing.T) {
	testlevel.Full(t)
	for round := range 5 {
		w := realWorld(t)
		o := newCallEvents()
		l, _, _ := w.Locker(lockcore.Options{Observer: o})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		kinds := []testcall.Call{
			{Terms: lockcore.Terms{Wait: lockcore.Forever}},
			{Terms: lockcore.Terms{Wait: time.Minute, Lease: 10 * time.Second}},
			{Terms: lockcore.Terms{Wait: lockcore.Forever}, Fixed: true},
			{Terms: lockcore.Terms{Wait: time.Minute, MaxHold: time.Minute}},
		}
		const waiters = 60
		var calls sync.WaitGroup
		tokens := make([]int64, waiters)
		for i := range waiters {
			terms := kinds[(i/(1+round))%len(kinds)]
			calls.Go(func() {
				le, err := terms.Acquire(o.call(t.Context(), i), l, "k")
				if err != nil {
					t.Errorf("waiter %d: %v", i, err)
					return
				}
				tokens[i] = le.Token()
				_ = le.Release(t.Context())
			})
			o.until(t, i, event.Waiting{})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		first := int64(0) // the smallest token of a new call
		refused := 0
		var newcomers sync.WaitGroup
		for i := range 4 {
			newcomers.Go(func() {
				for ctx.Err() == nil {
					terms := kinds[i]
					terms.Wait = lockcore.NoWait
					le, err := terms.Acquire(t.Context(), l, "k")
					mu.Lock()
					if err != nil {
						refused++
					} else if first == 0 || le.Token() < first {
						first = le.Token()
					}
					mu.Unlock()
					if err == nil {
						_ = le.Release(t.Context())
					} else if !errors.Is(err, lockcore.ErrBusy) {
						t.Error(err)
					}
					time.Sleep(10 * time.Microsecond)
				}
			})
		}
		eventually(t, "a new call is refused", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return refused > 0
		})
		_ = le.Release(t.Context())
		calls.Wait()
		cancel()
		newcomers.Wait()
		if !slices.IsSorted(tokens) || tokens[0] <= le.Token() {
			t.Errorf("the waiters' tokens are not in order of arrival: %d", tokens)
		}
		if first != 0 && first < tokens[waiters-1] {
			t.Errorf("a new call got token %d, the last waiter %d; %d new calls were refused", first, tokens[waiters-1], refused)
		}
	}
}

// A call of this process has the key. A call with NoWait is refused at once, without a command, and
// its error names the holder.
// Shows: C2
func TestTurnsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(lockcore.WithTask(t.Context(), "the holder"), "k", lockcore.Terms{}))
		count.Reset()
		start := time.Now()
		_, err := l.Acquire(t.Context(), "k", noWait)
		if d := time.Since(start); d != 0 {
			t.Errorf("refused after %v", d)
		}
		if b, ok := errors.AsType[*lockcore.BusyError](err); !ok || b.Holder.Task != "the holder" || b.Remaining <= 0 || len(count.Commands()) != 0 {
			t.Errorf("%+v, with commands %v", err, count)
		}
		_ = le.Release(t.Context())
	})
}
