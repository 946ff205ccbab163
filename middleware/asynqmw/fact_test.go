package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// These tests are about asynq alone, at the version that go.mod pins: what the middlewares rely on. When one fails after
// an upgrade, the design has to be looked at again.

// asynq does not wait for a handler that outlives its deadline: one task ID runs several times at once, and is archived
// although every run returned nil.
func TestAsynqFact_abandonedHandlersOverlap(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		w.serve(quick(), g.handler(func(context.Context, int, *asynq.Task) error {
			stubborn(4 * time.Second)
			return nil
		}))
		w.ends(w.enqueue("charge", "", asynq.MaxRetry(3), asynq.Timeout(time.Second)), asynq.TaskStateArchived)
		if runs, most := g.counts(); runs != 4 || most < 2 {
			w.Errorf("%d runs, %d at once; want 4 runs, several at once", runs, most)
		}
	})
}

// The last attempt is archived before IsFailure is asked.
func TestAsynqFact_lastAttemptIsArchivedWhateverIsFailureSays(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		cfg := quick()
		cfg.IsFailure = func(error) bool { return false }
		var g gauge
		w.serve(cfg, g.handler(func(context.Context, int, *asynq.Task) error { return errBoom }))
		w.ends(w.enqueue("charge", "", asynq.MaxRetry(0)), asynq.TaskStateArchived)
	})
}

// An error that is not a failure uses up no retry, however often it comes.
func TestAsynqFact_notAFailureUsesNoRetry(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		cfg := quick()
		cfg.IsFailure = func(error) bool { return false }
		var g gauge
		w.serve(cfg, g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			if run <= 3 {
				return errBoom
			}
			return nil
		}))
		if info := w.ends(w.enqueue("charge", "", asynq.MaxRetry(1)), asynq.TaskStateCompleted); info.Retried != 0 {
			w.Errorf("retried %d, want 0", info.Retried)
		}
	})
}

// ErrorHandler hears every error: those that are no failures, and RevokeTask too.
func TestAsynqFact_errorHandlerHearsEveryError(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var c complaints
		cfg := quick()
		cfg.ErrorHandler = &c
		cfg.IsFailure = func(error) bool { return false }
		var g gauge
		w.serve(cfg, g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			if run == 1 {
				return errBoom
			}
			return fmt.Errorf("enough: %w", asynq.RevokeTask)
		}))
		w.vanishes(w.enqueue("charge", ""))
		if got := c.all(); len(got) != 2 || !errors.Is(got[0], errBoom) || !errors.Is(got[1], asynq.RevokeTask) {
			w.Errorf("ErrorHandler heard %v, want both errors", got)
		}
	})
}

// Once ctx has ended, whatever the handler answers is counted as a failure.
func TestAsynqFact_answersAfterTheDeadlineAreFailures(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		cfg := quick()
		cfg.IsFailure = func(err error) bool { return !errors.Is(err, errBoom) }
		var g gauge
		w.serve(cfg, g.handler(func(ctx context.Context, run int, _ *asynq.Task) error {
			if run > 8 {
				return nil
			}
			<-ctx.Done()
			return errBoom // would not be a failure, had it come in time
		}))
		var tasks []*asynq.TaskInfo
		for range 8 {
			tasks = append(tasks, w.enqueue("charge", "", asynq.MaxRetry(3), asynq.Timeout(time.Second)))
		}
		for _, task := range tasks {
			if info := w.ends(task, asynq.TaskStateCompleted); info.Retried != 1 {
				w.Errorf("retried %d, want 1", info.Retried)
			}
		}
	})
}

// RevokeTask deletes a task in spite of its retention.
func TestAsynqFact_revokeIgnoresRetention(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		w.serve(quick(), g.handler(func(context.Context, int, *asynq.Task) error { return asynq.RevokeTask }))
		w.vanishes(w.enqueue("charge", "", asynq.Retention(time.Hour)))
	})
}

// A retry that is due after 1 s comes back when DelayedTaskCheckInterval is over, 5 s by default.
func TestAsynqFact_retriesComeInSteps(t *testing.T) {
	inBubble(t, func(w *world) {
		cfg := quick()
		cfg.DelayedTaskCheckInterval = 0
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
		var g gauge
		began := time.Now()
		var last atomic.Int64
		w.serve(cfg, g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			last.Store(int64(time.Since(began)))
			if run == 1 {
				return errBoom
			}
			return nil
		}))
		w.ends(w.enqueue("charge", ""), asynq.TaskStateCompleted)
		if after := time.Duration(last.Load()); after < 4*time.Second || after > 6*time.Second {
			w.Errorf("retry after %v, want about 5 s", after)
		}
	})
}

// Middleware is applied anew for every task.
func TestAsynqFact_middlewareIsAppliedPerTask(t *testing.T) {
	inBubble(t, func(w *world) {
		var applied atomic.Int64
		mux := asynq.NewServeMux()
		mux.Use(func(next asynq.Handler) asynq.Handler {
			applied.Add(1)
			return next
		})
		var g gauge
		mux.Handle("charge", g.handler(nothing))
		w.serve(quick(), mux)
		for range 3 {
			w.ends(w.enqueue("charge", ""), asynq.TaskStateCompleted)
		}
		if n := applied.Load(); n != 3 {
			w.Errorf("applied %d times for 3 tasks", n)
		}
	})
}

// A task ID is unique in its queue only.
func TestAsynqFact_taskIDsArePerQueue(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.enqueue("charge", "", asynq.TaskID("t"), asynq.Queue("a"))
		b := w.enqueue("charge", "", asynq.TaskID("t"), asynq.Queue("b"))
		if a.ID != b.ID {
			w.Errorf("IDs %q and %q", a.ID, b.ID)
		}
	})
}
