package asynqmw_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// pausable are the middlewares that wait for the end of a pause.
func pausable(locks *lockcore.Locker) map[string]asynq.MiddlewareFunc {
	return map[string]asynq.MiddlewareFunc{
		"Exclusive": asynqmw.Exclusive(locks, byPayload, asynqmw.ExclusiveOptions{}),
		"Limited":   asynqmw.Limited(locks, byPayload, lockcore.Limit{N: 2}, asynqmw.ShareOptions{}),
		"Throttled": asynqmw.Throttled(locks, byPayload, lockcore.Rate{N: 10}, asynqmw.ThrottleOptions{}),
	}
}

// serveAll starts a server with cfg whose tasks have the names of guards as their types. began receives the
// times at which they begin.
func (w *world) serveAll(cfg asynq.Config, guards map[string]asynq.MiddlewareFunc) (began chan time.Time) {
	w.Helper()
	m, began := asynq.NewServeMux(), make(chan time.Time, 2*len(guards))
	for name, guard := range guards {
		m.Handle(name, guard(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			began <- time.Now()
			return nil
		})))
	}
	w.serve(cfg, m)
	return began
}

func (w *world) pause(key string, d time.Duration) {
	w.Helper()
	if err := w.locks.Pause(w.Context(), key, d, "operator"); err != nil {
		w.Fatal(err)
	}
}

// A pause of 10 h is ended early, or one of 1 min ends by itself. A parked task then runs within 2 s.
// Without parking a task runs within 75 s: 70 s, the wait for its key, and asynq's look for due tasks. No
// task runs before the end, and no retry is used up.
// Shows: V6
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	for _, parking := range []bool{true, false} {
		for _, d := range []time.Duration{10 * time.Hour, time.Minute} {
			inBubble(t, func(w *world) {
				cfg, most := asynqmw.Configure(quick()), 75*time.Second
				if parking {
					cfg, most = w.parking(9), 2*time.Second
				}
				guards := pausable(w.locks)
				began := w.serveAll(cfg, guards)
				var all []*asynq.TaskInfo
				for name := range guards {
					w.pause("test:"+name, d)
					all = append(all, w.enqueue(name, name, asynq.MaxRetry(1)))
				}
				end := time.Now().Add(min(d, time.Minute))
				time.Sleep(time.Until(end))
				for name := range guards {
					if d > time.Hour {
						w.pause("test:"+name, 0)
					}
				}
				for _, task := range all {
					w.noRetry(w.ends(task, asynq.TaskStateCompleted))
					if took := (<-began).Sub(end); took < -time.Millisecond || took > most {
						w.Errorf("parking %v: a task ran %v after the end of a pause of %v", parking, took, d)
					}
				}
			})
		}
	}
}

// A restriction is ended while another task has its share of the key: the parked task runs within 5 s.
// Shows: V7
func TestRestrictionEndWakes(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		// A task that waits in its worker is woken when its wait ends, because its request leaves the queue.
		began := w.serveAll(w.parking(9), map[string]asynq.MiddlewareFunc{
			"Limited": asynqmw.Limited(w.locks, byPayload, lockcore.Limit{N: 2}, asynqmw.ShareOptions{Terms: noWait}),
		})
		if err := w.locks.Restrict(w.Context(), "test:k", lockcore.Restriction{Limit: 1, For: time.Hour, Reason: "night"}); err != nil {
			w.Fatal(err)
		}
		lease, err := w.locks.AcquireShare(w.Context(), "test:k", lockcore.Limit{N: 2}, lockcore.Terms{})
		if err != nil {
			w.Fatal(err)
		}
		defer func() { _ = lease.Release(context.Background()) }()
		task := w.parked(w.enqueue("Limited", "k"))
		end := time.Now()
		if err := w.locks.Restrict(w.Context(), "test:k", lockcore.Restriction{}); err != nil {
			w.Fatal(err)
		}
		w.ends(task, asynq.TaskStateCompleted)
		if took := (<-began).Sub(end); took < 0 || took > 5*time.Second {
			w.Errorf("the task ran %v after the end of the restriction", took)
		}
	})
}
