package asynqmw_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// guards has a constructor for each guard, which also returns the lease of another holder of the
// key.
var guards = map[string]func(*world, lockcore.Terms, asynqmw.ConflictPolicy) (asynq.MiddlewareFunc, *lockcore.Lease){
	"exclusive": func(w *world, t lockcore.Terms, b asynqmw.ConflictPolicy) (asynq.MiddlewareFunc, *lockcore.Lease) {
		return asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: t, Busy: b}), w.hold("test:7")
	},
	"shared": func(w *world, t lockcore.Terms, b asynqmw.ConflictPolicy) (asynq.MiddlewareFunc, *lockcore.Lease) {
		return asynqmw.Shared(w.locks, byPayload, asynqmw.ShareOptions{Terms: t, Busy: b}), w.hold("test:7")
	},
	"limited": func(w *world, t lockcore.Terms, b asynqmw.ConflictPolicy) (asynq.MiddlewareFunc, *lockcore.Lease) {
		return asynqmw.Limited(w.locks, byPayload, lockcore.Limit{N: 3}, asynqmw.ShareOptions{Terms: t, Busy: b}), w.hold("test:7")
	},
	"once": func(w *world, t lockcore.Terms, b asynqmw.ConflictPolicy) (asynq.MiddlewareFunc, *lockcore.Lease) {
		return asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Terms: t, Busy: b}), w.holdOnce("charge/test:7")
	},
}

// holdOnce acquires a once key as another holder.
func (w *world) holdOnce(key string) *lockcore.Lease {
	w.Helper()
	lease, _, err := w.locks.Claim(lockcore.WithTask(context.Background(), "the-holder"), key, lockcore.Claim{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = lease.Release(context.Background()) })
	return lease
}

// For each guard and each policy a conflict has the documented results. These are the state in
// asynq, the calls of ErrorHandler, the events, and the number of retries that are used up.
// Shows: A1
func TestPolicies(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		for name, decorate := range guards {
			for _, tt := range []struct {
				busy           asynqmw.ConflictPolicy
				opts           []asynq.Option
				state          asynq.TaskState // 0: asynq has deleted the task
				retried, heard int             // calls of ErrorHandler
				lost           int             // ConflictLost
			}{
				{busy: asynqmw.RetryLater, opts: []asynq.Option{asynq.MaxRetry(1)}, state: asynq.TaskStateRetry},
				{busy: asynqmw.RetryLater, opts: []asynq.Option{asynq.MaxRetry(0), asynq.Timeout(time.Second)}, state: asynq.TaskStateArchived, heard: 1, lost: 1},
				{busy: asynqmw.Skip, state: asynq.TaskStateCompleted},
				{busy: asynqmw.Skip, opts: []asynq.Option{asynq.MaxRetry(0)}, state: asynq.TaskStateCompleted},
				{busy: asynqmw.Drop},
				{busy: asynqmw.Drop, opts: []asynq.Option{asynq.MaxRetry(0)}},
				{busy: asynqmw.Fail, opts: []asynq.Option{asynq.MaxRetry(2)}, state: asynq.TaskStateArchived, retried: 2, heard: 3, lost: 1},
			} {
				var g gauge
				c, before := new(complaints), len(locktest.EventsOf[event.ConflictLost](w.heard))
				mw, lease := decorate(w, noWait, tt.busy)
				cfg := quick()
				cfg.ErrorHandler = c
				srv := w.serve(asynqmw.Configure(cfg), mw(g.handler(nothing)))
				task := w.enqueue("charge", "7", tt.opts...)
				if tt.state == 0 {
					w.vanishes(task)
				} else if info := w.until(task, func(i *asynq.TaskInfo) bool { return i.State == tt.state && i.Retried == tt.retried }); info.Retried != tt.retried {
					w.Errorf("%s, %v: retried %d, want %d", name, tt.busy, info.Retried, tt.retried)
				}
				srv.Shutdown()
				_ = lease.Release(context.Background())
				if tt.state == asynq.TaskStateRetry {
					if err := w.inspect.DeleteTask("default", task.ID); err != nil { // for the next one
						w.Fatal(err)
					}
				}
				runs, _ := g.counts()
				lost := len(locktest.EventsOf[event.ConflictLost](w.heard)) - before
				if runs != 0 || len(c.all()) != tt.heard || lost != tt.lost {
					w.Errorf("%s, %v with %v: %d runs, ErrorHandler got %v, %d ConflictLost; want 0, %d and %d",
						name, tt.busy, tt.opts, runs, c.all(), lost, tt.heard, tt.lost)
				}
			}
		}
	})
}

// 50 conflicts use up no retry and do not reach ErrorHandler. Then the task runs.
// Shows: A1
func TestFiftyConflicts(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		c := new(complaints)
		cfg := quick()
		cfg.DelayedTaskCheckInterval = 50 * time.Millisecond
		cfg.ErrorHandler = c
		cfg = asynqmw.Configure(cfg)
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 } // otherwise a second per conflict
		mw, lease := guards["exclusive"](w, noWait, asynqmw.RetryLater)
		w.serve(cfg, mw(g.handler(nothing)))
		task := w.enqueue("charge", "7", asynq.MaxRetry(1))
		if !w.eventually(func() bool { return len(locktest.EventsOf[event.Refused](w.heard)) >= 50 }) {
			w.Errorf("%d conflicts, want 50", len(locktest.EventsOf[event.Refused](w.heard)))
		}
		if info := w.until(task, func(*asynq.TaskInfo) bool { return true }); info.Retried != 0 {
			w.Errorf("retried %d", info.Retried)
		}
		_ = lease.Release(context.Background())
		info := w.ends(task, asynq.TaskStateCompleted)
		if runs, _ := g.counts(); runs != 1 || info.Retried != 0 || len(c.all()) != 0 {
			w.Errorf("%d runs, retried %d, ErrorHandler got %v; want 1, 0 and nothing", runs, info.Retried, c.all())
		}
	})
}

// With MaxRetry(0) the last attempt waits until shortly before the deadline: a quarter of the
// timeout, at most 1 s, is left. If the holder ends before that, the task runs. Otherwise it is
// archived.
// Shows: A2
func TestLastAttemptWaitsUpToTheDeadline(t *testing.T) {
	t.Parallel()
	for name, decorate := range guards {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				for _, tt := range []struct {
					timeout, busy time.Duration
					state         asynq.TaskState
				}{
					{20 * time.Second, 18900 * time.Millisecond, asynq.TaskStateCompleted},
					{20 * time.Second, 19100 * time.Millisecond, asynq.TaskStateArchived},
					{2 * time.Second, 1400 * time.Millisecond, asynq.TaskStateCompleted},
					{2 * time.Second, 1600 * time.Millisecond, asynq.TaskStateArchived},
				} {
					mw, lease := decorate(w, noWait, asynqmw.RetryLater)
					var g gauge
					started := make(chan time.Duration, 1)
					h := mw(g.handler(nothing))
					srv := w.serve(asynqmw.Configure(quick()), asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
						deadline, _ := ctx.Deadline()
						started <- time.Until(deadline) - tt.timeout // asynq's deadlines are in whole seconds
						return h.ProcessTask(ctx, t)
					}))
					task := w.enqueue("charge", "7", asynq.MaxRetry(0), asynq.Timeout(tt.timeout))
					late := <-started
					<-time.After(tt.busy + late)
					_ = lease.Release(w.Context())
					w.ends(task, tt.state)
					srv.Shutdown()
					g.counts()
					_ = w.locks.Clear(w.Context(), event.KindOnce, "charge/test:7")
				}
			})
		})
	}
}
