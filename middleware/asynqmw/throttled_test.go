package asynqmw_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Two servers with parking run 200 tasks at 20 a second, and tasks of another key between them. No
// window has too many begins, no retry is used up, and the other tasks do not wait for the rate.
// Shows: V1, A6
func TestThrottledParking(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		const tasks = 200
		var mu sync.Mutex
		var at []time.Time
		rate := lockcore.Rate{N: 19, Burst: 2}
		partner := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			return nil
		})
		for _, locks := range []*lockcore.Locker{w.locks, w.locker()} {
			m := asynq.NewServeMux()
			m.HandleFunc("other", func(context.Context, *asynq.Task) error { return nil })
			m.Handle("call", asynqmw.Throttled(locks, asynqmw.ByType(), rate, asynqmw.ThrottleOptions{})(partner))
			w.serve(w.parking(9), m)
		}
		began := time.Now()
		var all []*asynq.TaskInfo
		for range tasks {
			all = append(all, w.enqueue("call", "", asynq.MaxRetry(1)))
		}
		for range 10 {
			one := time.Now()
			w.ends(w.enqueue("other", ""), asynq.TaskStateCompleted)
			if took := time.Since(one); w.late(took, 2*time.Second) {
				w.Errorf("a task without a rate took %v", took)
			}
		}
		w.all(all)
		for _, task := range all {
			w.noRetry(w.ends(task, asynq.TaskStateCompleted))
		}
		mu.Lock()
		defer mu.Unlock()
		slices.SortFunc(at, time.Time.Compare)
		if len(at) != tasks {
			w.Errorf("%d runs, want %d", len(at), tasks)
		}
		for i := range at {
			if w.virtual && i >= 20 && at[i].Sub(at[i-20]) < time.Second-time.Microsecond {
				w.Fatalf("21 calls within %v", at[i].Sub(at[i-20]))
			}
		}
		took, ideal := at[len(at)-1].Sub(began), tasks*time.Second/19
		if w.late(took, ideal*100/93) {
			w.Errorf("%d calls took %v, at best %v", tasks, took, ideal)
		}
		if n := w.entries("type:call"); n != 0 {
			w.Errorf("%d entries are left", n)
		}
		w.Logf("%d calls took %v, at best %v, parked %d times", tasks, took, ideal, len(locktest.EventsOf[event.Parked](w.heard)))
	})
}

// A task of a slow rate is parked until its turn, with a text that says so, and comes back then.
func TestThrottledSlowly(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var mu sync.Mutex
		var at []time.Duration
		began := time.Now()
		w.serve(w.parking(3), asynqmw.Throttled(w.locks, byPayload, lockcore.Rate{N: 1, Per: time.Minute}, asynqmw.ThrottleOptions{})(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(began))
			return nil
		})))
		first := w.enqueue("call", "7")
		w.ends(first, asynq.TaskStateCompleted)
		second, third := w.parked(w.enqueue("call", "7")), w.parked(w.enqueue("call", "7"))
		if want := `asynqmw: parked on key "test:7" with 0 before it; its rate lets the next one begin in 59.`; !strings.HasPrefix(second.LastErr, want) {
			w.Errorf("the last error is %q, want %q", second.LastErr, want)
		}
		if left := time.Until(third.NextProcessAt); left < 110*time.Second || left > 2*time.Minute {
			w.Errorf("the third task comes back in %v", left)
		}
		w.ends(second, asynq.TaskStateCompleted)
		w.noRetry(w.ends(third, asynq.TaskStateCompleted))
		mu.Lock()
		defer mu.Unlock()
		if len(at) != 3 || at[1]-at[0] < time.Minute-time.Microsecond || at[1]-at[0] > 61*time.Second || at[2]-at[1] < time.Minute-time.Microsecond || at[2]-at[1] > 61*time.Second {
			w.Errorf("the tasks began after %v", at)
		}
	})
}

// RateFunc returns an invalid rate or an error. The task does not run, asynq gets an error with the
// reason, and the Observer gets NoKey. Constructors panic.
func TestThrottledFunc(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.serve(asynqmw.Configure(quick()), asynqmw.ThrottledFunc(w.locks, byPayload, func(_ context.Context, t *asynq.Task) (lockcore.Rate, error) {
			switch string(t.Payload()) {
			case "bad":
				return lockcore.Rate{}, nil
			case "error":
				return lockcore.Rate{}, errors.New("no tenant")
			}
			return lockcore.Rate{N: 5}, nil
		}, asynqmw.ThrottleOptions{})(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
		for payload, want := range map[string]string{"bad": "Rate.N is 0, must be between 1 and 1000000", "error": "no tenant"} {
			if info := w.ends(w.enqueue("call", payload, asynq.MaxRetry(0)), asynq.TaskStateArchived); !strings.Contains(info.LastErr, want) {
				w.Errorf("%s: the last error is %q, want %q", payload, info.LastErr, want)
			}
		}
		w.ends(w.enqueue("call", "7"), asynq.TaskStateCompleted)
		if n := len(locktest.EventsOf[event.NoKey](w.heard)); n != 2 {
			w.Errorf("%d times NoKey, want 2", n)
		}
	})
	for name, f := range map[string]func(){
		"rate is nil": func() { asynqmw.ThrottledFunc(nil, nil, nil, asynqmw.ThrottleOptions{}) },
		"bad rate": func() {
			asynqmw.Throttled(nil, asynqmw.ByType(), lockcore.Rate{N: -1}, asynqmw.ThrottleOptions{Busy: 9})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

// A partner answers 429 and asks to wait 3 s. No task of any server begins for that time, each comes
// back, and no retry is used up.
// Shows: V6
func TestPausedByPartner(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var mu sync.Mutex
		var at []time.Time
		var refusedAt time.Time
		partner := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Now())
			if len(at) == 3 {
				refusedAt = time.Now()
				return guard.Paused(errors.New("429"), 3*time.Second)
			}
			return nil
		})
		for _, locks := range []*lockcore.Locker{w.locks, w.locker()} {
			w.serve(w.parking(6), asynqmw.Throttled(locks, asynqmw.ByType(), lockcore.Rate{N: 20}, asynqmw.ThrottleOptions{})(partner))
		}
		var all []*asynq.TaskInfo
		for range 20 {
			all = append(all, w.enqueue("call", "", asynq.MaxRetry(1)))
		}
		took := w.all(all)
		for _, task := range all {
			w.noRetry(w.ends(task, asynq.TaskStateCompleted))
		}
		mu.Lock()
		defer mu.Unlock()
		slices.SortFunc(at, time.Time.Compare)
		// On a busy machine calls may begin in real time before Redis has stored the pause.
		before, paused := refusedAt, false
		for _, a := range at {
			d := a.Sub(before)
			switch {
			case !a.After(refusedAt) || paused:
			case d >= 2900*time.Millisecond:
				paused = true
			case w.late(3*time.Second-d, 0):
				w.Errorf("a call began %v after the 429", d)
			default:
				before = a
			}
		}
		if !paused {
			w.Errorf("the calls began at %v, want 3 s without one after %v", at, refusedAt)
		}
		if len(at) != 21 || w.late(took, 10*time.Second) {
			w.Errorf("%d calls in %v, want 21", len(at), took)
		}
	})
}
