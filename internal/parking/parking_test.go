package parking_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// The tasks of a busy key are parked. They run in the order in which they were parked, soon after
// the key is free.
func TestParkedOrder(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		holder := q.hold("key")
		q.serve(3)
		for i, id := range names(5) {
			q.add("key", id)
			q.parked(id)
			task := q.task(id)
			if want := fmt.Sprintf(`test: parked on key "key" with %d before it; held for `, i); !strings.HasPrefix(task.LastError, want) || !strings.Contains(task.LastError, `task "the-holder"`) {
				q.Errorf("%s: %q, want %q and the holder", id, task.LastError, want)
			}
			if back := time.Until(task.Again); back < lease-time.Second || back > itself {
				q.Errorf("%s comes back in %v, want a lease", id, back)
			}
		}
		q.release(holder)
		if took := q.done(names(5)...); took > soon {
			q.Errorf("done after %v", took)
		}
		if runs := q.runs(); !slices.Equal(runs, names(5)) || q.inside() != 1 {
			q.Errorf("%v ran, %d at once", runs, q.inside())
		}
		if n := len(locktest.EventsOf[event.Parked](q.heard)); n != 5 {
			q.Errorf("%d times parked, want 5", n)
		}
		if all := locktest.EventsOf[event.Unparked](q.heard); len(all) != 5 || all[4].Count != 0 || all[0].Parked <= 0 {
			q.Errorf("unparked %+v, want 5", all)
		}
	})
}

// At most a third of the workers, and at least one, wait for busy keys, for all keys together. The
// other tasks are parked, so the other workers are free.
// Shows: A6
func TestRoom(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ workers, most int }{{2, 1}, {12, 4}} {
		t.Run(fmt.Sprint(tt.workers), func(t *testing.T) {
			inBubble(t, lockcore.Options{}, func(q *queue) {
				q.terms.Wait, q.work = 10*time.Second, 20*time.Millisecond
				q.serve(tt.workers)
				var holders []*lockcore.Lease
				var ids []string
				for i := range 4 {
					key := fmt.Sprint("key", i)
					holders = append(holders, q.hold(key))
					for j := range 10 {
						ids = append(ids, fmt.Sprint(i, "-", j))
						q.add(key, ids[len(ids)-1])
					}
				}
				time.Sleep(5 * time.Second)
				states := map[parking.State]int{}
				for _, id := range ids {
					states[q.task(id).State]++
				}
				if states[parking.Running] != tt.most || states[parking.Delayed] != 40-tt.most {
					q.Errorf("states %v, want %d tasks that wait and the others parked", states, tt.most)
				}
				for _, l := range holders {
					q.release(l)
				}
				q.done(ids...)
				if n := len(q.runs()); n != 40 {
					q.Errorf("%d runs", n)
				}
			})
		})
	}
}

// A woken task ends without its key, because a middleware outside of the guard ends it. No hold
// follows, and the next tasks are woken nevertheless.
func TestEndsOutside(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		holder := q.hold("key")
		q.serve(3)
		q.add("key", names(6)...)
		q.parked(names(6)...)
		q.set(func() { q.skips = func(id string) bool { return id < "t4" } })
		q.release(holder)
		if took := q.done(names(6)...); took > 2*soon {
			q.Errorf("done after %v", took)
		}
		if runs := q.runs(); !slices.Equal(runs, []string{"t4", "t5"}) {
			q.Errorf("%v ran", runs)
		}
	})
}

// A release that leaves the key cooling wakes no task. The end of MinHold wakes one, also if no
// worker waits.
func TestMinHold(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		const n, minHold = 8, 300 * time.Millisecond
		q.terms = lockcore.Terms{Wait: lockcore.NoWait, MinHold: minHold}
		q.serve(3)
		q.add("key", names(n)...)
		if took := q.done(names(n)...); took < (n-1)*minHold || took > n*minHold+2*soon {
			q.Errorf("done after %v", took)
		}
		if q.inside() != 1 || len(q.runs()) != n {
			q.Errorf("%d runs, %d at once", len(q.runs()), q.inside())
		}
	})
}

// Tasks that are parked on a once key end without a run when the key is done, all of them soon.
func TestDoneKey(t *testing.T) {
	t.Parallel()
	inBubble(t, lockcore.Options{}, func(q *queue) {
		q.kind, q.work = event.KindOnce, 10*time.Second
		q.serve(3)
		q.add("key", names(100)...)
		q.parked(names(100)[1:]...)
		if text := q.task("t7").LastError; !strings.HasPrefix(text, `test: parked on once key "key"`) {
			q.Errorf("last error %q", text)
		}
		q.done("t0")
		if took := q.done(names(100)...); took > 2*soon {
			q.Errorf("done after %v", took)
		}
		if runs := q.runs(); len(runs) != 1 {
			q.Errorf("%v ran", runs)
		}
		if n := len(locktest.EventsOf[event.Unparked](q.heard)); n != 99 {
			q.Errorf("%d tasks left the parked ones, want 99", n)
		}
	})
}

// A waker dies after each of its steps. All tasks run: soon after the release, because the process
// checks the free key again, or by themselves if no entry is left.
// Shows: A7
func TestWakerDies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		die         func(q *queue)
		hold        bool // a hold begins and ends when WokenTime is over
		least, most time.Duration
	}{
		"marked": {die: func(q *queue) { q.unpark("key") }, most: soon},
		"running": {
			die:  func(q *queue) { q.unpark("key"); q.Run("t0") },
			most: soon,
		},
		"removing": { // removes the entry of the first task, as its hold would, so the task is no longer known to be parked
			die:   func(q *queue) { q.unpark("key", q.unpark("key")...) },
			hold:  true,
			least: backend.WokenTime, most: itself + soon,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, lockcore.Options{}, func(q *queue) {
				holder := q.hold("key")
				q.serve(3)
				q.add("key", names(3)...)
				q.parked(names(3)...)
				began := time.Now()
				tt.die(q)
				q.release(holder)
				if tt.hold {
					time.Sleep(backend.WokenTime + 100*time.Millisecond)
					q.release(q.hold("key"))
				}
				q.done(names(3)...)
				if took := time.Since(began); took < tt.least || took > tt.most {
					q.Errorf("done after %v, want %v to %v", took, tt.least, tt.most)
				}
				if n := q.entries("key"); len(q.runs()) != 3 || q.inside() != 1 || n != 0 {
					q.Errorf("%v ran, %d at once, %d entries are left", q.runs(), q.inside(), n)
				}
			})
		})
	}
}

// A permit is released after a task has found none free, and before the task is parked. The task
// runs at once, although another holder keeps a second permit.
func TestLimitedFindsRoom(t *testing.T) {
	t.Parallel()
	var first *lockcore.Lease
	o := lockcore.Options{Observer: &refusal{fn: func() { _ = first.Release(context.Background()) }}}
	inBubble(t, o, func(q *queue) {
		permit := func() *lockcore.Lease {
			l, err := q.locks.AcquireShare(context.Background(), "key", lockcore.Limit{N: 2}, lockcore.Terms{})
			if err != nil {
				q.Fatal(err)
			}
			return l
		}
		first = permit()
		defer q.release(permit())
		q.limit.N = 2
		q.serve(3)
		q.add("key", "t0")
		if took := q.done("t0"); took > soon {
			q.Errorf("done after %v", took)
		}
		if n := q.entries("key"); n != 0 {
			q.Errorf("%d entries are left", n)
		}
	})
}

// refusal is an Observer that calls fn for each call that is refused.
type refusal struct {
	locktest.Recorder

	fn func()
}

func (r *refusal) Event(_ context.Context, e event.Event) {
	if _, ok := e.(event.Refused); ok {
		r.fn()
	}
}
