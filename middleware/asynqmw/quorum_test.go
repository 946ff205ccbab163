package asynqmw_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// quorumWorld has its locks on a majority of servers, and asynq on another one.
func quorumWorld(t *testing.T, story func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, bubble(t).Client(t))
		locks, err := lockcore.NewQuorum(redistest.Masters(t), lockcore.Options{Observer: w.heard})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locks.Close(context.Background()) })
		w.locks, w.virtual = locks, true
		story(w)
	})
}

// Locks on a majority of servers: tasks of a key take turns, and a conflict uses up no retry. With
// Parking they are not parked, which is reported once, and come back by their own delay.
func TestQuorumExclusive(t *testing.T) {
	t.Parallel()
	for _, parking := range []bool{false, true} {
		quorumWorld(t, func(w *world) {
			cfg := asynqmw.Configure(quick())
			if parking {
				cfg = w.parking(8)
			}
			var g gauge
			alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: 100 * time.Millisecond}})
			w.serve(cfg, alone(g.handler(func(context.Context, int, *asynq.Task) error { stubborn(time.Second); return nil })))
			var tasks []*asynq.TaskInfo
			for range 6 {
				tasks = append(tasks, w.enqueue("charge", "7", asynq.MaxRetry(1)))
			}
			for _, task := range tasks {
				w.noRetry(w.ends(task, asynq.TaskStateCompleted))
			}
			if runs, most := g.counts(); runs != 6 || most != 1 {
				w.Errorf("%d runs, %d at once; want six, one after the other", runs, most)
			}
			said := locktest.EventsOf[event.Misconfigured](w.heard)
			if want := map[bool]int{true: 1}[parking]; len(said) != want || want > 0 && !strings.Contains(said[0].Problem, "not parked on a majority") {
				w.Errorf("with parking %t: %v", parking, said)
			}
			if n := len(locktest.EventsOf[event.Parked](w.heard)); n > 0 {
				w.Errorf("%d tasks were parked", n)
			}
		})
	}
}

// Once, Latest, Shared and Limited need one Redis: the task does not run, and its error says so.
func TestQuorumRefused(t *testing.T) {
	t.Parallel()
	for want, guard := range map[string]func(*lockcore.Locker) asynq.MiddlewareFunc{
		"once keys: use one Redis, or package sqlonce": func(l *lockcore.Locker) asynq.MiddlewareFunc {
			return asynqmw.Once(l, byPayload, asynqmw.OnceOptions{})
		},
		"the order of triggers: use one Redis": func(l *lockcore.Locker) asynq.MiddlewareFunc {
			return asynqmw.Latest(l, byPayload, asynqmw.LatestOptions{})
		},
		"shares: use one Redis": func(l *lockcore.Locker) asynq.MiddlewareFunc {
			return asynqmw.Shared(l, byPayload, asynqmw.ShareOptions{})
		},
		"majority of servers: shares: use one Redis": func(l *lockcore.Locker) asynq.MiddlewareFunc {
			return asynqmw.Limited(l, byPayload, lockcore.Limit{N: 2}, asynqmw.ShareOptions{})
		},
	} {
		quorumWorld(t, func(w *world) {
			var g gauge
			w.serve(asynqmw.Configure(quick()), guard(w.locks)(g.handler(func(context.Context, int, *asynq.Task) error { return nil })))
			task := w.ends(w.enqueue("charge", "7", asynq.MaxRetry(1)), asynq.TaskStateArchived)
			if runs, _ := g.counts(); runs > 0 || !strings.Contains(task.LastErr, want) {
				w.Errorf("%d runs, error %q", runs, task.LastErr)
			}
		})
	}
}
