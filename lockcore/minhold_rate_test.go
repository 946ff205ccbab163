package lockcore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// rateCase is a key with a MinHold, and the calls that wait for it.
type rateCase struct {
	limit   int // 0: the whole key
	window  time.Duration
	lockers int
	callers int // of each Locker
}

func (c rateCase) String() string {
	kind := "exclusive"
	if c.limit > 0 {
		kind = fmt.Sprint("limit ", c.limit)
	}
	return fmt.Sprintf("%s per %v, %d x %d", kind, c.window, c.lockers, c.callers)
}

// rateCases returns a case for each limit, each window and each number of Lockers.
func rateCases() (all []rateCase) {
	for _, key := range []rateCase{
		{limit: 3, window: 100 * time.Millisecond},
		{limit: 10, window: time.Second},
		{limit: 3, window: 20 * time.Millisecond},
		{window: 100 * time.Millisecond},
		{window: time.Second},
		{window: 20 * time.Millisecond},
	} {
		for _, calls := range []rateCase{{lockers: 1, callers: 10}, {lockers: 2, callers: 10}, {lockers: 4, callers: 5}} {
			key.lockers, key.callers = calls.lockers, calls.callers
			all = append(all, key)
		}
	}
	return all
}

// run makes the calls of c for d, on lockers. Each hold lasts for 1 ms, so that a hand-off would be
// possible. It returns the number of holds, divided by the possible number.
func (c rateCase) run(t *testing.T, lockers []*lockcore.Locker, key string, d time.Duration) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	call := testcall.Call{Limit: lockcore.Limit{N: c.limit}, Terms: lockcore.Terms{MinHold: c.window, Wait: lockcore.Forever}}
	var holds atomic.Int64
	var all sync.WaitGroup
	for i := range c.lockers * c.callers {
		all.Go(func() {
			for ctx.Err() == nil {
				le, err := call.Acquire(ctx, lockers[i%c.lockers], key)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				holds.Add(1)
				time.Sleep(time.Millisecond)
				if err := le.Release(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return float64(holds.Load()) / c.possible(d)
}

func (c rateCase) possible(d time.Duration) float64 {
	return float64(max(c.limit, 1)) * float64(d) / float64(c.window)
}

// Calls that wait for a key with a MinHold get it at the end of the MinHold: in any number of
// processes, in memory and in Redis.
// Shows: L4
func TestMinHoldRate(t *testing.T) {
	d := testlevel.Pick(t, time.Second, time.Second, 20*time.Second)
	for _, c := range rateCases() {
		for _, store := range []string{"memory", "Redis"} {
			t.Run(c.String()+", "+store, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := (*world)(nil)
					if store == "Redis" {
						w = newWorld(t)
					}
					lockers, commands := rateLockers(t, w, c.lockers)
					share := c.run(t, lockers, "k", d)
					t.Logf("%.3f of the possible holds, %.2f commands a hold", share, float64(commands())/(share*c.possible(d)))
					if share < 0.99 || share > 1.01 {
						t.Errorf("%.3f of the possible holds", share)
					}
				})
			})
		}
	}
}

// The calls of several processes on a real server get the rate of one caller for each permit, which
// runs at the same time on another key.
func TestMinHoldRateReal(t *testing.T) {
	testlevel.Campaign(t)
	for _, c := range []rateCase{{3, 100 * time.Millisecond, 4, 5}, {0, 100 * time.Millisecond, 2, 10}, {3, 20 * time.Millisecond, 1, 10}} {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			lockers, commands := rateLockers(t, realWorld(t), c.lockers+1)
			control, d := c, 3*time.Second
			control.lockers, control.callers = 1, max(c.limit, 1)
			var alone float64
			var both sync.WaitGroup
			both.Go(func() { alone = control.run(t, lockers[c.lockers:], "control", d) })
			share := c.run(t, lockers[:c.lockers], "k", d)
			both.Wait()
			t.Logf("%.3f of the possible holds, %.3f by one caller for each permit, %d commands", share, alone, commands())
			if share < 0.95*alone {
				t.Errorf("%.3f of the possible holds, want that of one caller for each permit: %.3f", share, alone)
			}
		})
	}
}

// TestMinHoldRateTable prints the rate of each case in real time, one after the other.
func TestMinHoldRateTable(t *testing.T) {
	testlevel.Campaign(t)
	for _, c := range rateCases() {
		t.Run(c.String(), func(t *testing.T) {
			for name, w := range map[string]*world{"memory": nil, "Redis": realWorld(t)} {
				lockers, commands := rateLockers(t, w, c.lockers)
				const d = 5 * time.Second
				one := rateCase{c.limit, c.window, 1, max(c.limit, 1)}.run(t, lockers, "one", d)
				before := commands()
				share := c.run(t, lockers, "k", d)
				t.Logf("%s: %.3f, one caller for each permit %.3f, %.2f commands a hold", name, share, one, float64(commands()-before)/(share*c.possible(d)))
			}
		})
	}
}

// rateLockers returns n Lockers on a server, or in memory if w is nil, and a function that returns
// the number of the commands that they have sent to the server.
func rateLockers(t *testing.T, w *world, n int) (lockers []*lockcore.Locker, commands func() int) {
	t.Helper()
	if w == nil {
		s := newSpace(t)
		for range n {
			lockers = append(lockers, s.Locker(lockcore.Options{}))
		}
		return lockers, func() int { return 0 }
	}
	var counts []*redistest.Counter
	for range n {
		l, _, count := w.Locker(lockcore.Options{})
		lockers, counts = append(lockers, l), append(counts, count)
	}
	return lockers, func() (sum int) {
		for _, c := range counts {
			sum += len(c.Commands())
		}
		return sum
	}
}
