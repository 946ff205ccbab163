package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/lockworld"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// inSpace returns n Lockers in memory that share their keys.
func inSpace(t *testing.T, n int) []*lockcore.Locker {
	t.Helper()
	open, err := lockcore.NewSpace()
	if err != nil {
		t.Fatal(err)
	}
	all := make([]*lockcore.Locker, n)
	for i := range all {
		if all[i], err = open(lockcore.Options{Observer: event.Discard}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = all[i].Close(context.Background()) })
	}
	return all
}

// begins counts the calls of a key that began.
type begins struct {
	mu sync.Mutex
	at []time.Time
}

func (b *begins) add() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = append(b.at, time.Now())
}

// most returns the greatest number of begins in any span of length per. The clock of memory counts
// whole microseconds.
func (b *begins) most(per time.Duration) (most int) {
	slices.SortFunc(b.at, time.Time.Compare)
	from := 0
	for i := range b.at {
		for b.at[i].Sub(b.at[from]) >= per-time.Microsecond {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// Many calls of several processes wait for one rate. No window has more than N + Burst - 1 of them,
// no slot of the rate is lost, and each call begins.
// Shows: V1, V2
func TestThrottleWindows(t *testing.T) {
	for seed := range uint64(testlevel.Pick(t, 20, 100, 1000)) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			r := lockcore.Rate{N: 1 + rnd.IntN(40), Per: time.Duration(1+rnd.IntN(3)) * time.Second, Burst: 1 + rnd.IntN(4)}
			lockers, n := inSpace(t, 1+rnd.IntN(4)), 20+rnd.IntN(100)
			var b begins
			var wg sync.WaitGroup
			start := time.Now()
			for range n {
				l, after := lockers[rnd.IntN(len(lockers))], time.Duration(rnd.IntN(1000))*time.Millisecond
				wg.Go(func() {
					time.Sleep(after)
					if _, err := l.Throttle(t.Context(), "k", r, lockcore.ThrottleOptions{Wait: lockcore.Forever}); err != nil {
						t.Error(err)
						return
					}
					b.add()
				})
			}
			wg.Wait()
			if most := b.most(r.Per); most > r.N+r.Burst-1 || len(b.at) != n {
				t.Fatalf("seed %d: %d of %d calls began, %d of them within %v, with %+v", seed, len(b.at), n, most, r.Per, r)
			}
			if took, most := time.Since(start), time.Second+time.Duration(n)*r.Per/time.Duration(r.N)+200*time.Millisecond; took > most {
				t.Errorf("seed %d: %d calls took %v, want at most %v with %+v", seed, n, took, most, r)
			}
		})
	}
}

// Calls of one process begin in the order of their arrival, also if their costs differ.
// Shows: V3
func TestThrottleOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inSpace(t, 1)[0]
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				r := lockcore.Rate{N: 10, Cost: 1 + i%3*4}
				if _, err := l.Throttle(t.Context(), "k", r, lockcore.ThrottleOptions{Wait: lockcore.Forever}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if !slices.IsSorted(order) {
			t.Errorf("the calls began in the order %v", order)
		}
	})
}

// A call whose turn is after the end of its wait is refused at once, and its error has the time of
// its turn. The calls before it begin.
// Shows: V4
func TestThrottleRefusesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lockers := inSpace(t, 2)
		r, second := lockcore.Rate{N: 10}, lockcore.ThrottleOptions{Wait: 1050 * time.Millisecond}
		start := time.Now()
		var wg sync.WaitGroup
		var mu sync.Mutex
		began, refused := 0, 0
		for range 50 {
			wg.Go(func() {
				_, err := lockers[0].Throttle(t.Context(), "k", r, second)
				var busy *lockcore.BusyError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					began++
				case !errors.As(err, &busy) || !busy.Exact || busy.Remaining <= second.Wait || busy.Remaining > 5*time.Second || !errors.Is(err, lockcore.ErrNotRun):
					t.Errorf("the error is %v: %+v", err, busy)
				case time.Since(start) > 10*time.Millisecond:
					t.Errorf("refused after %v", time.Since(start))
				default:
					refused++
				}
			})
		}
		wg.Wait()
		if began != 11 || refused != 39 {
			t.Errorf("%d calls began and %d were refused, want 11 and 39", began, refused)
		}
		if _, err := lockers[1].Throttle(t.Context(), "k", lockcore.Rate{N: 1, Per: time.Minute}, lockcore.ThrottleOptions{Wait: lockcore.NoWait}); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("NoWait: %v", err)
		}
		_, err := lockers[1].Throttle(t.Context(), "k", lockcore.Rate{N: 1, Per: time.Hour, Cost: 3}, second)
		if err != nil {
			t.Error(err)
		}
		_, err = lockers[1].Throttle(t.Context(), "k", lockcore.Rate{N: 1, Per: time.Hour}, second)
		var busy *lockcore.BusyError
		if !errors.As(err, &busy) || busy.RetryAfter() != 3*time.Hour || !strings.Contains(busy.Error(), "its rate is used up, the turn of this call is in 3h0m0s") {
			t.Errorf("the error is %v: %+v", err, busy)
		}
	})
}

// A call that gives up, and a Locker that is closed, let the next calls begin without a delay.
// Shows: V2
func TestThrottleGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lockers, r := inSpace(t, 3), lockcore.Rate{N: 1}
		start := time.Now()
		throttle := func(ctx context.Context, l *lockcore.Locker) error {
			_, err := l.Throttle(ctx, "k", r, lockcore.ThrottleOptions{Wait: lockcore.Forever})
			return err
		}
		if err := throttle(t.Context(), lockers[0]); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := throttle(ctx, lockers[0]); !errors.Is(err, context.Canceled) || !errors.Is(err, lockcore.ErrNotRun) {
				t.Errorf("canceled: %v", err)
			}
		})
		time.Sleep(time.Millisecond)
		wg.Go(func() {
			if err := throttle(t.Context(), lockers[1]); !errors.Is(err, lockcore.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
		time.Sleep(time.Millisecond)
		wg.Go(func() {
			if err := throttle(t.Context(), lockers[2]); err != nil || time.Since(start) > 1010*time.Millisecond {
				t.Errorf("%v after %v", err, time.Since(start))
			}
		})
		time.Sleep(500 * time.Millisecond)
		cancel()
		if err := lockers[1].Close(t.Context()); err != nil {
			t.Error(err)
		}
		wg.Wait()
	})
}

// The turn of a call depends on the costs of the calls in front of it, not on its own. One whose turn is
// within its wait is not refused, and one whose turn is later is refused at once.
// Shows: V4
func TestTurnBehindOtherCosts(t *testing.T) {
	of := func(cost int) lockcore.Rate { return lockcore.Rate{N: 100, Burst: 100, Cost: cost} }
	for name, tt := range map[string]struct {
		calls, cost, last int
		wait, turn        time.Duration // turn 0: it is within wait
	}{
		"heavy behind light": {calls: 20, cost: 1, last: 50, wait: 2 * time.Second},
		"light behind heavy": {calls: 6, cost: 100, last: 1, wait: 2 * time.Second, turn: 6 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := inSpace(t, 1)[0]
				if err := l.Spend(t.Context(), "k", of(100)); err != nil {
					t.Fatal(err)
				}
				var wg sync.WaitGroup
				for range tt.calls {
					wg.Go(func() {
						if _, err := l.Throttle(t.Context(), "k", of(tt.cost), lockcore.ThrottleOptions{Wait: lockcore.Forever}); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(5 * time.Millisecond)
				start := time.Now()
				_, err := l.Throttle(t.Context(), "k", of(tt.last), lockcore.ThrottleOptions{Wait: tt.wait})
				busy, refused := errors.AsType[*lockcore.BusyError](err)
				switch took := time.Since(start); {
				case tt.turn == 0 && err != nil:
					t.Errorf("refused after %v: %v", took, err)
				case tt.turn > 0 && (!refused || took > 0 || (busy.Remaining-tt.turn).Abs() > 20*time.Millisecond):
					t.Errorf("after %v: %v, want a refusal at once, with a turn in about %v", took, err, tt.turn)
				}
				wg.Wait()
			})
		})
	}
}

// Throttle waits while the key is held alone, and not for shares. Inside a hold of the key it is
// refused.
// Shows: V5
func TestThrottleBesideHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lockers, r, forever := inSpace(t, 2), lockcore.Rate{N: 100}, lockcore.ThrottleOptions{Wait: lockcore.Forever}
		le, err := lockers[0].Acquire(t.Context(), "k", lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lockers[0].Throttle(le.Context(), "k", r, forever); !errors.Is(err, lockcore.ErrNested) {
			t.Errorf("nested: %v", err)
		}
		start := time.Now()
		for _, l := range lockers { // a call of the same process, and one of another
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := l.Throttle(t.Context(), "k", r, forever); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(3 * time.Second)
			if err := le.Release(t.Context()); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if took := time.Since(start); took < 3*time.Second || took > 3*time.Second+20*time.Millisecond {
				t.Errorf("the call began after %v", took)
			}
			if le, err = lockers[0].Acquire(t.Context(), "k", lockcore.Terms{}); err != nil {
				t.Fatal(err)
			}
			start = time.Now()
		}
		_ = le.Release(t.Context())
		share, err := lockers[0].AcquireShare(t.Context(), "k", lockcore.Limit{N: 1}, lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lockers[0].Throttle(share.Context(), "k", r, forever); !errors.Is(err, lockcore.ErrNested) {
			t.Errorf("nested in a share: %v", err)
		}
		start = time.Now()
		if _, err := lockers[1].Throttle(t.Context(), "k", r, forever); err != nil || time.Since(start) > 20*time.Millisecond {
			t.Errorf("beside a share: %v after %v", err, time.Since(start))
		}
		_ = share.Release(t.Context())
	})
}

// Permits with a rate are bounded by both: at most N at the same time, and so many begins. None is
// handed to another call.
// Shows: V1, S1
func TestLimitWithRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lockers := inSpace(t, 3)
		n := lockcore.Limit{N: 2, Rate: lockcore.Rate{N: 20, Burst: 2}}
		var b begins
		var wg sync.WaitGroup
		var mu sync.Mutex
		running, most := 0, 0
		start := time.Now()
		for i := range 60 {
			wg.Go(func() {
				le, err := lockers[i%3].AcquireShare(t.Context(), "k", n, lockcore.Terms{Wait: lockcore.Forever})
				if err != nil {
					t.Error(err)
					return
				}
				b.add()
				mu.Lock()
				running++
				most = max(most, running)
				mu.Unlock()
				time.Sleep(time.Duration(1+i%4*40) * time.Millisecond) // a share without a rate is handed on for 5 ms
				mu.Lock()
				running--
				mu.Unlock()
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if began := b.most(time.Second); began > 21 || most > 2 || len(b.at) != 60 {
			t.Errorf("%d calls began within a second, %d ran at the same time, %d in all", began, most, len(b.at))
		}
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("60 calls took %v", took)
		}
	})
}

// A command of a call arrives after the call has repeated it and was admitted. It takes nothing.
// Shows: V2
func TestThrottleLateDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		two, now := lockcore.Rate{N: 1, Per: time.Hour, Burst: 2}, lockcore.ThrottleOptions{Wait: lockcore.NoWait}
		_, err := l.Throttle(t.Context(), "warm", two, now)
		lockworld.OK(t, err)
		late := faults.Hold(faulty.Script("throttle"))
		_, err = l.Throttle(t.Context(), "k", two, lockcore.ThrottleOptions{Wait: time.Minute})
		lockworld.OK(t, err)
		if !lockworld.Struck(late) {
			t.Fatal("no command was late")
		}
		time.Sleep(5 * time.Second) // until the request is withdrawn
		late.Deliver()
		<-late.Replied()
		a, err := other.Throttle(t.Context(), "k", two, now)
		if err != nil || a.Left != 0 {
			t.Errorf("the second call: %+v, %v", a, err)
		}
		h, err := other.Inspect(t.Context(), event.KindExclusive, "k")
		if err != nil || h.Queue != 0 {
			t.Errorf("%d requests are in the queue, %v", h.Queue, err)
		}
	})
}

// Spend makes later calls wait, and waits for nothing itself.
func TestSpend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inSpace(t, 1)[0]
		r := lockcore.Rate{N: 100, Per: time.Minute, Burst: 100}
		start := time.Now()
		cost := r
		cost.Cost = 80
		for range 2 {
			if err := l.Spend(t.Context(), "k", cost); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(start) != 0 {
			t.Errorf("Spend took %v", time.Since(start))
		}
		got, err := l.Throttle(t.Context(), "k", r, lockcore.ThrottleOptions{Wait: time.Minute})
		if took := time.Since(start); err != nil || took < 36*time.Second || took > 37*time.Second || got.Left != 0 || got.Reset <= 0 {
			t.Errorf("%v after %v: %+v", err, took, got)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.Spend(t.Context(), "k", r); !errors.Is(err, lockcore.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

// Each number of a Rate beyond its bound is refused with its field, its value and the bound.
func TestRateValidate(t *testing.T) {
	l := inSpace(t, 1)[0]
	for _, tt := range []struct {
		r    lockcore.Rate
		want string
	}{
		{lockcore.Rate{}, "Rate.N is 0, must be between 1 and 1000000"},
		{lockcore.Rate{N: 1_000_001}, "Rate.N is 1000001, must be between 1 and 1000000"},
		{lockcore.Rate{N: 1, Per: -1}, "Rate.Per is -1ns, must be between 1ms and 24h0m0s"},
		{lockcore.Rate{N: 1, Per: 25 * time.Hour}, "Rate.Per is 25h0m0s, must be between 1ms and 24h0m0s"},
		{lockcore.Rate{N: 5000, Per: time.Millisecond}, "Rate.Per is 1ms, must be at least 5ms for an N of 5000"},
		{lockcore.Rate{N: 1, Burst: -1}, "Rate.Burst is -1, must be between 0 and 1000000"},
		{lockcore.Rate{N: 1, Cost: 1_000_001}, "Rate.Cost is 1000001, must be between 0 and 1000000"},
		{lockcore.Rate{N: 1, Per: time.Hour, Burst: 25}, "Rate.Burst is 25, must be at most 24, which flow in within 24h0m0s"},
		{lockcore.Rate{N: 1, Per: time.Hour, Cost: 25}, "Rate.Cost is 25, must be at most 24, which flow in within 24h0m0s"},
	} {
		_, err := l.Throttle(t.Context(), "k", tt.r, lockcore.ThrottleOptions{})
		spent := l.Spend(t.Context(), "k", tt.r)
		for _, err := range []error{err, spent} {
			if !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(fmt.Sprint(err), tt.want) {
				t.Errorf("%+v: %v, want %q", tt.r, err, tt.want)
			}
		}
		if tt.r.N == 0 {
			continue // the zero Rate of a Limit is none
		}
		if _, err := l.AcquireShare(t.Context(), "k", lockcore.Limit{N: 1, Rate: tt.r}, lockcore.Terms{}); !errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("AcquireShare with %+v: %v", tt.r, err)
		}
	}
	for _, n := range []lockcore.Limit{{Rate: lockcore.Rate{N: 1}}, {N: lockcore.Unlimited, Rate: lockcore.Rate{N: 1}}} {
		if _, err := l.AcquireShare(t.Context(), "k", n, lockcore.Terms{}); err == nil || !strings.Contains(err.Error(), "use Throttled or Locker.Throttle") {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if _, err := l.Throttle(t.Context(), "", lockcore.Rate{N: 1}, lockcore.ThrottleOptions{Wait: -2, MaxWaiting: -1}); err == nil ||
		!strings.Contains(err.Error(), "Terms.Wait is -2ns") || !strings.Contains(err.Error(), "Terms.MaxWaiting is -1") || !errors.Is(err, lockcore.ErrKey) {
		t.Errorf("bad options: %v", err)
	}
}
