package lockcore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// onEachBackend runs a test with a function that makes Lockers with the same keys.
func onEachBackend(t *testing.T, test func(t *testing.T, locker func() *lockcore.Locker)) {
	t.Helper()
	for name, world := range map[string]func(t *testing.T) func() *lockcore.Locker{
		"memory": func(t *testing.T) func() *lockcore.Locker {
			s := newSpace(t)
			return func() *lockcore.Locker { return s.Locker(lockcore.Options{}) }
		},
		"redis": func(t *testing.T) func() *lockcore.Locker {
			w := newWorld(t)
			return func() *lockcore.Locker { l, _, _ := w.Locker(lockcore.Options{}); return l }
		},
		"quorum": func(t *testing.T) func() *lockcore.Locker {
			s := newServers(t, 3)
			return func() *lockcore.Locker { return s.locker(t, lockcore.Options{}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "memory" {
				testlevel.InMemory(t)
			}
			synctest.Test(t, func(t *testing.T) { test(t, world(t)) })
		})
	}
}

// waitingCalls are calls that wait in a process and return the key after some time.
type waitingCalls struct {
	t    *testing.T
	all  sync.WaitGroup
	stay time.Duration
}

func (c *waitingCalls) add(l *lockcore.Locker, n int, wait time.Duration) {
	for range n {
		c.all.Go(func() {
			le, err := l.Acquire(c.t.Context(), "k", lockcore.Terms{Wait: wait})
			if err != nil {
				return // the wait is over
			}
			time.Sleep(c.stay)
			_ = le.Release(context.Background())
		})
	}
	synctest.Wait()
}

// Inspect counts the calls that wait in other processes than the holder's, once they have waited for a
// second. A process says it again after 10 s, not earlier. A count ends with the request.
// Shows: W12
func TestWaitingCalls(t *testing.T) {
	onEachBackend(t, func(t *testing.T, locker func() *lockcore.Locker) {
		holder, a, b := locker(), locker(), locker()
		le, err := holder.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		calls, start := waitingCalls{t: t}, time.Now()
		check := func(at time.Duration, queue, waiting int, oldest bool) {
			t.Helper()
			time.Sleep(time.Until(start.Add(at)))
			h, err := holder.Inspect(t.Context(), event.KindExclusive, "k")
			ok(t, err)
			if h.Queue != queue || h.WaitingCalls != waiting || (h.OldestWait > 0) != oldest || oldest && h.OldestWait.Round(100*time.Millisecond) != at.Round(100*time.Millisecond) {
				t.Errorf("after %v: %d processes, %d calls, the oldest for %v; want %d and %d", at, h.Queue, h.WaitingCalls, h.OldestWait, queue, waiting)
			}
		}
		calls.add(a, 3, time.Minute)
		calls.add(holder, 4, time.Minute) // behind their own hold: not counted
		calls.add(b, 2, 20*time.Second)
		check(900*time.Millisecond, 2, 2, false)
		check(5*time.Second, 2, 5, true)
		calls.add(a, 1, time.Minute)
		check(9*time.Second, 2, 5, true)
		check(19*time.Second, 2, 6, true)
		check(21*time.Second, 1, 4, true)
		ok(t, le.Release(t.Context()))
		calls.all.Wait()
		check(2*time.Minute, 0, 0, false)
	})
}

// While processes take turns, each turn has another request. What a process has said still counts for
// its next request.
// Shows: W12
func TestWaitingCallsTurns(t *testing.T) {
	onEachBackend(t, func(t *testing.T, locker func() *lockcore.Locker) {
		a, b := locker(), locker()
		calls := waitingCalls{t: t, stay: 1500 * time.Millisecond}
		calls.add(a, 20, time.Minute)
		calls.add(b, 20, time.Minute)
		time.Sleep(4 * time.Second)
		seen := 0
		for range 100 { // within 20 s
			h, err := a.Inspect(t.Context(), event.KindExclusive, "k")
			ok(t, err)
			if seen += h.Queue; h.Queue > 0 && (h.WaitingCalls < 5 || h.OldestWait < 2*time.Second) {
				t.Errorf("%d processes, %d calls, the oldest for %v", h.Queue, h.WaitingCalls, h.OldestWait)
			}
			time.Sleep(200 * time.Millisecond)
		}
		if seen < 50 {
			t.Errorf("a process was in the queue %d times of 100", seen)
		}
		calls.all.Wait()
	})
}

// A call without competition sends no count, and leaves nothing in Redis.
// Shows: I8
func TestWaitingCallsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		calls, counts := waitingCalls{t: t, stay: time.Millisecond}, func() (n int) {
			for _, name := range w.Memory.Redis.Keys() {
				if strings.Contains(name, "{k}:q:") {
					n++
				}
			}
			return n
		}
		le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{}))
		calls.add(b, 2, time.Minute)
		time.Sleep(900 * time.Millisecond)
		if n := counts(); n != 0 {
			t.Errorf("%d processes have said something within a second", n)
		}
		time.Sleep(2 * time.Second)
		if n := counts(); n != 1 {
			t.Errorf("%d processes have said something, want 1", n)
		}
		ok(t, le.Release(t.Context()))
		calls.all.Wait()
		time.Sleep(15 * time.Second)
		if names := w.Memory.Redis.Keys(); len(names) != 0 {
			t.Errorf("%q is left", names)
		}
	})
}
