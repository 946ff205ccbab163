package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Two servers with parking run 40 tasks under a limit of three. At most three run at a time, each
// runs once, and no retry is used up. This holds for tasks that wait in their workers, that never
// wait, and that have a MinHold.
func TestLimitedParking(t *testing.T) {
	t.Parallel()
	for name, terms := range map[string]lockcore.Terms{
		"waits": {Lease: 10 * time.Minute}, "never waits": {Wait: lockcore.NoWait, Lease: 10 * time.Minute},
		"MinHold": {Wait: lockcore.NoWait, Lease: 10 * time.Minute, MinHold: 60 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				const tasks, limit = 40, 3
				var g gauge
				h := g.handler(func(context.Context, int, *asynq.Task) error {
					stubborn(20 * time.Millisecond)
					return nil
				})
				for _, locks := range []*lockcore.Locker{w.locks, w.locker()} {
					w.serve(w.parking(9), asynqmw.Limited(locks, asynqmw.ByType(), lockcore.Limit{N: limit}, asynqmw.ShareOptions{Terms: terms})(h))
				}
				var all []*asynq.TaskInfo
				for range tasks {
					all = append(all, w.enqueue("charge", ""))
				}
				took := w.all(all)
				if w.late(took, time.Minute) { // a task that is not woken comes back after 10 min
					w.Errorf("done after %v", took)
				}
				// In real time the tasks may come slowly, and a slow waker may run a task again that has a Retention.
				if runs, most := g.counts(); runs < tasks || most > limit || w.virtual && (runs > tasks || most < limit) {
					w.Errorf("%d runs, %d at once; want %d and %d", runs, most, tasks, limit)
				}
				if n := w.entries("type:charge"); n != 0 {
					w.Errorf("%d entries are left", n)
				}
				w.Logf("done after %v, parked %d times", took, len(locktest.EventsOf[event.Parked](w.heard)))
			})
		})
	}
}

// A writer is parked while readers run. The end of the last reader wakes it, and it runs alone. The
// end of a hold wakes the readers that are parked behind it, and they run at the same time.
func TestSharedParking(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var all gauge
		begun, finish := make(chan bool), make(chan bool)
		mux := asynq.NewServeMux()
		mux.Handle("read", asynqmw.Shared(w.locks, byPayload, asynqmw.ShareOptions{Terms: parkAtOnce.Terms})(all.handler(func(context.Context, int, *asynq.Task) error {
			begun <- true
			<-finish
			return nil
		})))
		mux.Handle("write", asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			if run := all.enter(); run != 3 {
				w.Errorf("the writer runs as number %d, want 3", run)
			}
			defer all.leave()
			all.mu.Lock()
			defer all.mu.Unlock()
			if all.now != 1 {
				w.Errorf("%d others run beside the writer", all.now-1)
			}
			return nil
		})))
		w.serve(w.parking(9), mux)

		first := w.enqueue("read", "7")
		<-begun
		writer := w.parked(w.enqueue("write", "7"))
		second := w.enqueue("read", "7")
		<-begun // beside the first one: a parked task does not wait for the key
		finish <- true
		finish <- true
		if took := w.all([]*asynq.TaskInfo{first, second, writer}); w.late(took, soon) {
			w.Errorf("done after %v", took)
		}

		lease := w.hold("test:7")
		tasks := []*asynq.TaskInfo{w.parked(w.enqueue("read", "7")), w.parked(w.enqueue("read", "7"))}
		_ = lease.Release(context.Background())
		for range tasks {
			<-begun
		}
		close(finish)
		if took := w.all(tasks); w.late(took, soon) {
			w.Errorf("done after %v", took)
		}
		if runs, most := all.counts(); runs != 5 || most != 2 {
			w.Errorf("%d runs, %d at once; want 5 and 2", runs, most)
		}
		if n := w.entries("test:7"); n != 0 {
			w.Errorf("%d entries are left", n)
		}
	})
}

// LimitFunc returns an invalid limit or an error. The task does not run, asynq gets an error with
// the reason, and the Observer gets NoKey.
func TestLimitedFunc(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		for payload, tt := range map[string]struct {
			limit int
			err   error
			want  string // "": the task runs
		}{
			"2": {limit: 2}, "max": {limit: 1_000_000},
			"1": {limit: 1, want: "the limit of LimitFunc: Limit.Weight is 2, must be between 0 and N, which is 1"}, "-1": {limit: lockcore.Unlimited, want: "Limit.Weight is 2, must be 0"},
			"more": {limit: 1_000_001, want: "Limit.N is 1000001"}, "error": {err: errBoom, want: `no limit for a task of type "charge": boom`},
		} {
			var g gauge
			limit := func(context.Context, *asynq.Task) (lockcore.Limit, error) {
				return lockcore.Limit{N: tt.limit, Weight: 2}, tt.err
			}
			mw := asynqmw.LimitedFunc(w.locks, byPayload, limit, asynqmw.ShareOptions{})
			err := mw(g.handler(nothing)).ProcessTask(w.Context(), asynq.NewTask("charge", []byte(payload)))
			runs, _ := g.counts()
			if tt.want == "" && (err != nil || runs != 1) {
				w.Errorf("%s: %v, %d runs", payload, err, runs)
			}
			if tt.want != "" && (!errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(fmt.Sprint(err), tt.want) || runs != 0) {
				w.Errorf("%s: %v, %d runs; want %q", payload, err, runs, tt.want)
			}
		}
		if n := len(locktest.EventsOf[event.NoKey](w.heard)); n != 4 {
			w.Errorf("NoKey %d times, want 4", n)
		}
	})
}

// Each middleware of shares panics for a limit or options that are not valid.
func TestShareOptions(t *testing.T) {
	t.Parallel()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.WithoutCancel(t.Context()))
	key, one := asynqmw.ByType(), lockcore.Limit{N: 1}
	for want, fn := range map[string]func(){
		"Limit.Weight is 2, must be between 0 and N, which is 1": func() { asynqmw.Limited(locks, key, lockcore.Limit{N: 1, Weight: 2}, asynqmw.ShareOptions{}) },
		"Limit.N is 0, must be between 1 and 1000000":            func() { asynqmw.Limited(locks, key, lockcore.Limit{}, asynqmw.ShareOptions{}) },
		"Limit.N is 1000001, must be between 1 and 1000000":      func() { asynqmw.Limited(locks, key, lockcore.Limit{N: 1_000_001}, asynqmw.ShareOptions{}) },
		"ShareOptions.Busy is 9":                                 func() { asynqmw.Limited(locks, key, one, asynqmw.ShareOptions{Busy: 9}) },
		"Shared: ShareOptions.Busy is 8":                         func() { asynqmw.Shared(locks, key, asynqmw.ShareOptions{Busy: 8}) },
		"limit must not be nil":                                  func() { asynqmw.LimitedFunc(locks, key, nil, asynqmw.ShareOptions{}) },
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, want) {
					t.Errorf("panic %q, want %q", got, want)
				}
			}()
			fn()
		}()
	}
}
