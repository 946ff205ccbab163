package asynqmw_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// A handler outlives its deadline, as in TestAsynqFact_abandonedHandlersOverlap. With Once it runs
// once. The late success is recorded, and the retry replays it, passes the result to asynq and
// completes the task.
func TestOnceOutlivesDeadline(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, asynqmw.ByTaskID(), asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(g.handler(func(ctx context.Context, _ int, _ *asynq.Task) error {
			stubborn(4 * time.Second)
			return asynqmw.SetResult(ctx, []byte("late"))
		})))
		info := w.ends(w.enqueue("charge", "", asynq.MaxRetry(3), asynq.Timeout(time.Second)), asynq.TaskStateCompleted)
		if runs, most := g.counts(); runs != 1 || most != 1 {
			w.Errorf("%d runs, %d at once; want one", runs, most)
		}
		if info.Retried < 1 || w.virtual && info.Retried > 1 || string(info.Result) != "late" { // a slow machine may use another retry
			w.Errorf("retried %d with result %q; want 1, for the deadline, and the result of the late run", info.Retried, info.Result)
		}
	})
}

// The last attempt outlives its deadline, and asynq archives the task. RunTask then completes it
// without another run.
func TestOnceLastAttemptOutlivesDeadline(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, asynqmw.ByTaskID(), asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(g.handler(func(context.Context, int, *asynq.Task) error {
			stubborn(2 * time.Second)
			return nil
		})))
		info := w.ends(w.enqueue("charge", "", asynq.MaxRetry(0), asynq.Timeout(time.Second)), asynq.TaskStateArchived)
		g.counts()
		if err := w.inspect.RunTask(info.Queue, info.ID); err != nil {
			w.Fatal(err)
		}
		w.until(info, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateCompleted })
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

// The first delivery fails and the redelivery runs. A deduplication that marks the key before the
// handler runs would lose this task.
func TestOnceFailureIsRunAgain(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			if run == 1 {
				return errBoom
			}
			return nil
		})))
		info := w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
		if runs, _ := g.counts(); runs != 2 || info.Retried != 1 {
			w.Errorf("%d runs, retried %d; want 2 and 1", runs, info.Retried)
		}
	})
}

// A duplicate completes without a run and with the same result, byte for byte. A task of another
// type with the same key runs.
// Shows: A12
func TestOnceReplay(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(g.handler(func(ctx context.Context, _ int, t *asynq.Task) error {
			return asynqmw.SetResult(ctx, []byte("receipt\x00 of a "+t.Type()))
		})))
		for _, kind := range []string{"charge", "charge", "refund"} {
			if info := w.ends(w.enqueue(kind, "7"), asynq.TaskStateCompleted); string(info.Result) != "receipt\x00 of a "+kind {
				w.Errorf("%s: result %q", kind, info.Result)
			}
		}
		if runs, _ := g.counts(); runs != 2 {
			w.Errorf("%d runs, want one per type", runs)
		}
	})
}

// A handler panics. The key is free, and asynq still detects the panic.
// Shows: O5
func TestOncePanic(t *testing.T) {
	inBubble(t, func(w *world) {
		var c complaints
		cfg := quick()
		cfg.ErrorHandler = &c
		var g gauge
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(cfg), once(g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			if run == 1 {
				panic("boom")
			}
			return nil
		})))
		w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
		if runs, _ := g.counts(); runs != 2 {
			w.Errorf("%d runs, want 2", runs)
		}
		if got := c.all(); len(got) != 1 || !asynq.IsPanicError(got[0]) {
			w.Errorf("ErrorHandler got %v, want the panic", got)
		}
	})
}

// With AtMostOnce a panic leaves the key abandoned. No later attempt runs, and the task is
// archived. When an operator has cleared the key, RunTask runs the task again.
func TestOnceAtMostOnceAbandoned(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Mode: guard.AtMostOnce})
		w.serve(asynqmw.Configure(quick()), once(g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			if run == 1 {
				panic("boom")
			}
			return nil
		})))
		info := w.ends(w.enqueue("charge", "7", asynq.MaxRetry(2)), asynq.TaskStateArchived)
		if runs, _ := g.counts(); runs != 1 || info.Retried != 1 {
			w.Errorf("%d runs, retried %d; want 1 and 1", runs, info.Retried)
		}
		if err := w.locks.Clear(w.Context(), event.KindOnce, "charge/test:7"); err != nil {
			w.Fatal(err)
		}
		if err := w.inspect.RunTask(info.Queue, info.ID); err != nil {
			w.Fatal(err)
		}
		w.until(info, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateCompleted })
		if runs, _ := g.counts(); runs != 2 {
			w.Errorf("%d runs, want 2", runs)
		}
	})
}

// A Final error is recorded. Each retry replays its text without a run.
func TestOnceFinal(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), once(g.handler(func(context.Context, int, *asynq.Task) error {
			return guard.Final(errors.New("card declined"))
		})))
		info := w.ends(w.enqueue("charge", "7", asynq.MaxRetry(2)), asynq.TaskStateArchived)
		if runs, _ := g.counts(); runs != 1 || info.LastErr != "card declined" {
			w.Errorf("%d runs, last error %q", runs, info.LastErr)
		}
	})
}

// With a Fingerprint, the same key with another payload is refused.
// Shows: O6
func TestOnceFingerprint(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		once := asynqmw.Once(w.locks, asynqmw.ByJSON("payment", "/id"), asynqmw.OnceOptions{Fingerprint: asynqmw.WholePayload})
		w.serve(asynqmw.Configure(quick()), once(g.handler(nothing)))
		w.ends(w.enqueue("charge", `{"id":7,"cents":100}`), asynq.TaskStateCompleted)
		w.ends(w.enqueue("charge", `{"id":7,"cents":100}`), asynq.TaskStateCompleted)
		info := w.ends(w.enqueue("charge", `{"id":7,"cents":999}`, asynq.MaxRetry(1)), asynq.TaskStateArchived)
		if want := (&lockcore.MismatchError{Key: "charge/payment:7", Done: true}).Error(); info.LastErr != want {
			w.Errorf("last error %q, want %q", info.LastErr, want)
		}
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

// An Exclusive inside a Once finds its key busy. The Once does not record a failure, because its
// handler did not run.
// Shows: O1
func TestOnceAroundBusyExclusive(t *testing.T) {
	inBubble(t, func(w *world) {
		lease := w.hold("account:42")
		var g gauge
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Mode: guard.AtMostOnce})
		account := asynqmw.Exclusive(w.locks, func(context.Context, *asynq.Task) (guard.Key, error) {
			return guard.Key{Class: "account", ID: "42"}, nil
		}, asynqmw.ExclusiveOptions{})
		w.serve(asynqmw.Configure(quick()), once(account(g.handler(nothing))))
		task := w.enqueue("charge", "7")
		w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateRetry })
		_ = lease.Release(w.Context())
		w.noRetry(w.ends(task, asynq.TaskStateCompleted))
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

// A Once is nested in another Once. The result is in both records, also if the inner one is
// replayed.
func TestOnceNestedResult(t *testing.T) {
	inBubble(t, func(w *world) {
		h := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { return asynqmw.SetResult(ctx, []byte("receipt")) })
		inner := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})(h)
		for _, class := range []string{"a", "b"} {
			outer := asynqmw.Once(w.locks, func(context.Context, *asynq.Task) (guard.Key, error) {
				return guard.Key{Class: class, ID: "7"}, nil
			}, asynqmw.OnceOptions{})(inner)
			if err := outer.ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7"))); err != nil {
				w.Error(err)
			}
			got, err := guard.OnceValue(w.Context(), w.locks, "charge/"+class+":7", guard.OnceOptions{Codec: idempotency.Bytes()},
				func(context.Context) ([]byte, error) { return nil, errBoom })
			if err != nil || string(got.Value) != "receipt" {
				w.Errorf("record of %s: %q, %v", class, got.Value, err)
			}
		}
	})
}

// A duplicate of a task with two nested Onces gets the result of the outer record.
func TestOnceNestedReplay(t *testing.T) {
	inBubble(t, func(w *world) {
		var g gauge
		outer := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})
		inner := asynqmw.Once(w.locks, asynqmw.ByTaskID(), asynqmw.OnceOptions{})
		w.serve(asynqmw.Configure(quick()), outer(inner(g.handler(func(ctx context.Context, _ int, _ *asynq.Task) error {
			return asynqmw.SetResult(ctx, []byte("receipt"))
		}))))
		for range 2 {
			if info := w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted); string(info.Result) != "receipt" {
				w.Errorf("result %q", info.Result)
			}
		}
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

// SetResult returns an error outside of a Once, and after its handler has returned.
func TestSetResultOutside(t *testing.T) {
	inBubble(t, func(w *world) {
		if err := asynqmw.SetResult(w.Context(), nil); err == nil {
			w.Error("SetResult outside of a Once returned nil")
		}
		ctxs := make(chan context.Context, 1)
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{})
		h := once(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			ctxs <- ctx
			return asynqmw.SetResult(ctx, []byte("receipt"))
		}))
		if err := h.ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7"))); err != nil {
			w.Error(err)
		}
		if err := asynqmw.SetResult(<-ctxs, nil); err == nil {
			w.Error("SetResult after the handler returned nil")
		}
	})
}
