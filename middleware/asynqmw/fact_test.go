package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
)

// These tests check the behavior of asynq, at the version of go.mod, on which the middlewares rely.
// If one fails after an upgrade, check the design again.

// asynq does not wait for a handler that outlives its deadline. Several runs of one task ID
// overlap, and the task is archived although every run returned nil.
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

// asynq archives the task after its last attempt, although IsFailure returns false.
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

// An error that is not a failure uses up no retry, after any number of attempts.
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

// ErrorHandler gets every error, also RevokeTask and errors that are no failures.
func TestAsynqFact_errorHandlerGetsEveryError(t *testing.T) {
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
			w.Errorf("ErrorHandler got %v, want both errors", got)
		}
	})
}

// After the end of ctx every result of the handler counts as a failure.
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
			return errBoom // would not be a failure before the deadline
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

// A retry that is due after 1 s comes at the next check. DelayedTaskCheckInterval is 5 s by
// default.
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

// ServeMux applies the middleware again for every task.
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

// A task ID is unique only within its queue.
func TestAsynqFact_taskIDsArePerQueue(t *testing.T) {
	inBubble(t, func(w *world) {
		a := w.enqueue("charge", "", asynq.TaskID("t"), asynq.Queue("a"))
		b := w.enqueue("charge", "", asynq.TaskID("t"), asynq.Queue("b"))
		if a.ID != b.ID {
			w.Errorf("IDs %q and %q", a.ID, b.ID)
		}
	})
}

// RunTask runs a task in any state except pending and active. So parking checks the state first.
func TestAsynqFact_runTaskRunsEndedTasks(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		begun, finish := make(chan struct{}), make(chan struct{})
		h := g.handler(func(_ context.Context, _ int, t *asynq.Task) error {
			if t.Type() == "slow" {
				close(begun)
				<-finish
			}
			return nil
		})
		w.serve(quick(), h)
		completed, scheduled := w.enqueue("charge", ""), w.enqueue("charge", "", asynq.ProcessIn(time.Hour))
		archived := w.enqueue("charge", "", asynq.ProcessIn(time.Hour))
		w.ends(completed, asynq.TaskStateCompleted)
		if err := w.inspect.ArchiveTask("default", archived.ID); err != nil {
			w.Error(err)
		}
		for i, task := range []*asynq.TaskInfo{completed, archived, scheduled} {
			if err := w.inspect.RunTask("default", task.ID); err != nil {
				w.Errorf("RunTask %d: %v", i, err)
			}
			if !w.eventually(func() bool { runs, _ := g.counts(); return runs == i+2 }) {
				w.Errorf("task %d did not run", i)
			}
			w.ends(task, asynq.TaskStateCompleted)
		}

		active := w.enqueue("slow", "")
		<-begun
		pending := w.enqueue("charge", "", asynq.Queue("not-served"))
		for _, task := range []*asynq.TaskInfo{active, pending} {
			if err := w.inspect.RunTask(task.Queue, task.ID); err == nil || errors.Is(err, asynq.ErrTaskNotFound) {
				w.Errorf("RunTask of a task in state %v: %v, want another error", task.State, err)
			}
		}
		close(finish)
		w.ends(active, asynq.TaskStateCompleted)
	})
}

// errors.Is finds the Inspector's errors for a task or a queue that does not exist.
func TestAsynqFact_inspectorNotFound(t *testing.T) {
	inBubble(t, func(w *world) {
		w.enqueue("charge", "")
		for queue, want := range map[string]error{"default": asynq.ErrTaskNotFound, "other": asynq.ErrQueueNotFound} {
			if _, err := w.inspect.GetTaskInfo(queue, "x"); !errors.Is(err, want) {
				w.Errorf("GetTaskInfo in queue %s: %v, want %v", queue, err, want)
			}
			if err := w.inspect.RunTask(queue, "x"); !errors.Is(err, want) {
				w.Errorf("RunTask in queue %s: %v, want %v", queue, err, want)
			}
		}
	})
}

// asynq stores the last error of a task in full, and the Inspector returns it. A completed task
// keeps it.
func TestAsynqFact_lastErrorIsStoredInFull(t *testing.T) {
	inBubble(t, func(w *world) {
		long := strings.Repeat("an error\n\x00\"ä\"", 10_000)
		var g gauge
		w.serve(quick(), g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			if run == 1 {
				return errors.New(long)
			}
			return nil
		}))
		info := w.ends(w.enqueue("charge", ""), asynq.TaskStateCompleted)
		if info.LastErr != long {
			w.Errorf("%d bytes are stored, want %d", len(info.LastErr), len(long))
		}
	})
}

// A worker that dies costs its task a retry. Without retries asynq archives the task, whether or not
// its handler had begun.
func TestAsynqFact_aKillUsesARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, net := bubble(t), faulty.New(t)
		w := newWorld(t, server.Client(t))
		begun, end := make(chan struct{}, 2), make(chan struct{})
		dead := asynq.NewServerFromRedisClient(server.Client(t, func(o *redis.Options) { o.Dialer = net.Dial(o.Dialer) }), quick())
		if err := dead.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { begun <- struct{}{}; <-end; return nil })); err != nil {
			t.Fatal(err)
		}
		none, some := w.enqueue("charge", "0", asynq.MaxRetry(0)), w.enqueue("charge", "1", asynq.MaxRetry(1))
		<-begun
		<-begun
		net.Silence() // as a kill: its leases are not extended, and it ends no task
		var g gauge
		w.serve(quick(), g.handler(nothing))
		if info := w.ends(none, asynq.TaskStateArchived); info.LastErr != asynq.ErrLeaseExpired.Error() {
			t.Errorf("the last error is %q", info.LastErr)
		}
		if info := w.ends(some, asynq.TaskStateCompleted); info.Retried != 1 {
			t.Errorf("retried %d, want 1", info.Retried)
		}
		net.Heal()
		close(end)
		dead.Shutdown()
	})
}

// A task with Deadline has that deadline in its ctx in each delivery. A task with Timeout has a new
// deadline in each delivery.
func TestAsynqFact_timeoutIsOfADelivery(t *testing.T) {
	inBubble(t, func(w *world) {
		ends := make(chan time.Time, 4)
		cfg := quick()
		cfg.IsFailure = func(error) bool { return false }
		var g gauge
		w.serve(cfg, g.handler(func(ctx context.Context, run int, _ *asynq.Task) error {
			end, _ := ctx.Deadline()
			ends <- end
			if run%2 == 1 {
				return errBoom
			}
			return nil
		}))
		for opt, moves := range map[asynq.Option]bool{asynq.Timeout(time.Minute): true, asynq.Deadline(time.Now().Add(time.Hour)): false} {
			w.ends(w.enqueue("charge", "", opt), asynq.TaskStateCompleted)
			if first, second := <-ends, <-ends; second.After(first) != moves {
				w.Errorf("%v: deadlines %v and %v", opt, first, second)
			}
		}
	})
}
