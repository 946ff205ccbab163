package asynqmw_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

var noWait = lockcore.Terms{Wait: lockcore.NoWait}

// conflicted serves one task whose key has another holder.
func conflicted(w *world, cfg asynq.Config, o asynqmw.ExclusiveOptions, opts ...asynq.Option) (*gauge, *complaints, *lockcore.Lease, *asynq.TaskInfo) {
	w.Helper()
	g, c := new(gauge), new(complaints)
	cfg.ErrorHandler = c
	lease := w.hold("test:7")
	w.serve(asynqmw.Configure(cfg), asynqmw.Exclusive(w.locks, byPayload, o)(g.handler(nothing)))
	return g, c, lease, w.enqueue("charge", "7", opts...)
}

// RetryLater: conflicts use up no retry and do not reach the ErrorHandler.
// Shows: A1
func TestBusyRetryLater(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		g, c, lease, task := conflicted(w, quick(), asynqmw.ExclusiveOptions{Terms: noWait}, asynq.MaxRetry(1))
		if !w.eventually(func() bool { return len(locktest.EventsOf[event.Refused](w.heard)) >= 3 }) {
			w.Error("fewer than 3 conflicts")
		}
		_ = lease.Release(context.Background())
		info := w.ends(task, asynq.TaskStateCompleted)
		w.noRetry(info)
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
		if got := c.all(); len(got) != 0 {
			w.Errorf("ErrorHandler got %v", got)
		}
		if !strings.Contains(info.LastErr, `"test:7" is busy`) || !strings.Contains(info.LastErr, `task "the-holder"`) {
			w.Errorf("last error %q does not name the holder", info.LastErr)
		}
	})
}

// The key is released before Wait is over. The task runs in its first delivery.
func TestBusyWaits(t *testing.T) {
	inBubble(t, func(w *world) {
		g, _, lease, task := conflicted(w, quick(), asynqmw.ExclusiveOptions{})
		<-time.After(1900 * time.Millisecond)
		_ = lease.Release(w.Context())
		w.ends(task, asynq.TaskStateCompleted)
		if n := len(locktest.EventsOf[event.Refused](w.heard)); n != 0 {
			w.Errorf("%d conflicts", n)
		}
		if runs, most := g.counts(); runs != 1 || most != 1 {
			w.Errorf("%d runs, at most %d at once, want 1", runs, most)
		}
	})
}

// The wait ends before the deadline of the task, so asynq does not count the conflict as a failure.
func TestBusyWaitEndsBeforeDeadline(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}}
		g, _, lease, task := conflicted(w, quick(), o, asynq.Timeout(2*time.Second), asynq.MaxRetry(1))
		w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateRetry })
		refused := locktest.EventsOf[event.Refused](w.heard)
		if len(refused) != 1 || refused[0].Waited < 1200*time.Millisecond || refused[0].Waited > 1900*time.Millisecond {
			w.Errorf("refused %+v, want one after 1.5 s", refused)
		}
		_ = lease.Release(context.Background())
		w.noRetry(w.ends(task, asynq.TaskStateCompleted))
		g.counts()
	})
}

// On the last attempt RetryLater waits until shortly before the deadline, although Terms.Wait is
// NoWait.
func TestBusyLastAttemptWaitsLonger(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		g, _, lease, task := conflicted(w, quick(), asynqmw.ExclusiveOptions{Terms: noWait}, asynq.Timeout(10*time.Second), asynq.MaxRetry(0))
		w.waits()
		_ = lease.Release(context.Background())
		w.ends(task, asynq.TaskStateCompleted)
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
	})
}

// The key is still busy at the end of the last attempt. The task is archived with the name of the
// holder, and the Observer and the ErrorHandler get the conflict.
// Shows: A2
func TestBusyLastAttemptLost(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		g, c, _, task := conflicted(w, quick(), asynqmw.ExclusiveOptions{}, asynq.Timeout(2*time.Second), asynq.MaxRetry(0))
		info := w.ends(task, asynq.TaskStateArchived)
		if runs, _ := g.counts(); runs != 0 {
			w.Errorf("%d runs, want 0", runs)
		}
		if !strings.Contains(info.LastErr, "last attempt") || !strings.Contains(info.LastErr, `task "the-holder"`) {
			w.Errorf("last error %q", info.LastErr)
		}
		if lost := locktest.EventsOf[event.ConflictLost](w.heard); len(lost) != 1 || lost[0].Name != "test" || lost[0].Holder.Task != "the-holder" {
			w.Errorf("events %+v, want one that names the holder", lost)
		}
		if got := c.all(); len(got) != 1 || !errors.Is(got[0], lockcore.ErrBusy) || !errors.Is(got[0], lockcore.ErrNotRun) {
			w.Errorf("ErrorHandler got %v, want the conflict", got)
		} else if f, ok := errors.AsType[interface {
			error
			IsFailure() bool
		}](got[0]); !ok || !f.IsFailure() {
			w.Error("the error has no method IsFailure that returns true")
		}
	})
}

// A shutdown ends the wait of a last attempt. asynq puts the task back, so there is no
// ConflictLost.
func TestBusyLastAttemptShutdown(t *testing.T) {
	inBubble(t, func(w *world) {
		w.hold("test:7")
		cfg := quick()
		cfg.ShutdownTimeout = time.Second
		var g gauge
		srv := w.serve(asynqmw.Configure(cfg), asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{})(g.handler(nothing)))
		task := w.enqueue("charge", "7", asynq.MaxRetry(0))
		w.waits()
		srv.Shutdown()
		w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStatePending })
		if !w.eventually(func() bool { return len(locktest.EventsOf[event.Refused](w.heard)) == 1 }) {
			w.Error("the wait did not end")
		}
		synctest.Wait()
		if lost := locktest.EventsOf[event.ConflictLost](w.heard); len(lost) != 0 {
			w.Errorf("events %+v", lost)
		}
	})
}
