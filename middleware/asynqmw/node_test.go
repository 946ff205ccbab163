package asynqmw_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// node is the part of one of several processes: an asynq server and a Locker on the Redis of the
// world.
type node struct {
	*world
	locks *lockcore.Locker
	heard *locktest.Recorder
	srv   *asynq.Server
}

// node starts a server with one worker for the handler that h returns for the node's Locker.
func (w *world) node(h func(*lockcore.Locker) asynq.Handler) *node {
	w.Helper()
	n := &node{world: w, heard: new(locktest.Recorder)}
	locks, err := lockcore.New(w.rdb, lockcore.Options{Observer: n.heard, NoGroups: true})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = locks.Close(context.Background()) }) // some tests have closed the Locker before, with an error
	n.locks = locks
	cfg := quick()
	cfg.Concurrency, cfg.ShutdownTimeout = 1, 20*time.Second
	cfg.DelayedTaskCheckInterval = 20 * time.Millisecond
	n.srv = w.serve(asynqmw.Configure(cfg), h(locks))
	return n
}

// A server shuts down while its handler runs for longer than a lease. The lease is renewed
// meanwhile, and the next worker gets the key when the handler returns.
// Shows: A3
func TestShutdownRequeues(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		control := redistest.NewControl(w.T)
		begun, finish := make(chan context.Context, 1), make(chan struct{})
		alone := func(fn func(context.Context)) func(*lockcore.Locker) asynq.Handler {
			return func(locks *lockcore.Locker) asynq.Handler {
				o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Lease: 6 * time.Second, Wait: time.Minute}}
				return asynqmw.Exclusive(locks, byPayload, o)(g.handler(func(ctx context.Context, _ int, _ *asynq.Task) error {
					fn(ctx)
					return nil
				}))
			}
		}
		var returned, taken atomic.Int64
		old := w.node(alone(func(ctx context.Context) {
			begun <- ctx
			<-finish
			returned.Store(time.Now().UnixNano())
		}))
		first := w.enqueue("charge", "7")
		ctx := <-begun
		next := w.node(alone(func(context.Context) { taken.Store(time.Now().UnixNano()) }))
		second := w.enqueue("charge", "7")
		if !w.eventually(func() bool { return len(locktest.EventsOf[event.Waiting](next.heard)) == 1 }) {
			w.Error("the next worker does not wait")
		}
		stopped := make(chan struct{})
		go func() {
			old.srv.Shutdown()
			close(stopped)
		}()
		<-time.After(9 * time.Second) // a lease and a half
		if err := context.Cause(ctx); err != nil {
			w.Errorf("the handler's ctx ended: %v", err)
		}
		close(finish)
		w.ends(first, asynq.TaskStateCompleted)
		w.ends(second, asynq.TaskStateCompleted)
		<-stopped
		if err := old.locks.Close(w.Context()); err != nil {
			w.Error(err)
		}
		if runs, most := g.counts(); runs != 2 || most != 1 {
			w.Errorf("%d runs, %d at once; want two, one after the other", runs, most)
		}
		gap := time.Duration(taken.Load() - returned.Load())
		if gap < 0 || gap > 3*time.Second+control.Late(time.Unix(0, returned.Load())) { // half a lease: the key did not have to expire
			w.Errorf("taken %v after the handler had returned", gap)
		}
	})
}

// The ctx of Close ends before the handler returns. The handler's ctx ends and its lease is not
// renewed. The key is free when the lease expires and not before, although asynq put the task back
// before that.
// Shows: A3
func TestShutdownBoundEndsFirst(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		var runs [2]atomic.Int64 // the time when each run began
		begun, finish := make(chan context.Context, 2), make(chan struct{})
		alone := func(locks *lockcore.Locker) asynq.Handler {
			o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Lease: 10 * time.Second, Wait: 100 * time.Millisecond}} // long enough that the lease is not lost before Close
			return asynqmw.Exclusive(locks, byPayload, o)(g.handler(func(ctx context.Context, run int, _ *asynq.Task) error {
				runs[run-1].Store(time.Now().UnixNano())
				begun <- ctx
				if run == 1 {
					<-finish // ignores ctx
				}
				return nil
			}))
		}
		old := w.stopping(alone)
		task := w.enqueue("charge", "7")
		ctx := <-begun
		old.srv.Shutdown()
		w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStatePending })
		bound, cancel := context.WithTimeout(w.Context(), 200*time.Millisecond)
		defer cancel()
		if err := old.locks.Close(bound); err == nil {
			w.Error("Close returned nil while a handler ran")
		}
		if ctx.Err() == nil {
			w.Error("the handler's ctx did not end")
		}
		next := w.node(alone)
		held, err := next.locks.Inspect(w.Context(), event.KindExclusive, "test:7")
		if err != nil || held.State != lockcore.StateHeld || held.Remaining <= 0 {
			w.Fatalf("after Close: %+v, %v", held, err)
		}
		free := time.Now().Add(held.Remaining - 10*time.Millisecond) // both clocks have whole milliseconds
		<-begun
		if took := time.Unix(0, runs[1].Load()); took.Before(free) {
			w.Errorf("the key was taken %v before the lease's end", free.Sub(took))
		}
		info := w.ends(task, asynq.TaskStateCompleted)
		close(finish)
		g.counts()
		if lost := locktest.EventsOf[event.Lost](old.heard); len(lost) != 1 || !errors.Is(lost[0].Cause, lockcore.ErrGivenUp) {
			w.Errorf("events %+v, want one of ErrGivenUp", lost)
		}
		w.noRetry(info) // neither a shutdown nor a conflict uses up a retry
	})
}

// stopping returns a node whose server waits 200 ms for its handlers at a shutdown.
func (w *world) stopping(h func(*lockcore.Locker) asynq.Handler) *node {
	w.Helper()
	n := &node{world: w, locks: w.locks, heard: w.heard}
	cfg := quick()
	cfg.ShutdownTimeout = 200 * time.Millisecond
	n.srv = w.serve(asynqmw.Configure(cfg), h(w.locks))
	return n
}

// A handler outlives the shutdown of its server, and the next server gets the same task. With Once
// the task does not run again, because the late success is recorded. With Exclusive it runs again,
// but not at the same time.
// Shows: A3
func TestShutdownZombie(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		for name, tt := range map[string]struct {
			guard func(*lockcore.Locker) asynq.MiddlewareFunc
			runs  int
		}{
			"once": {func(l *lockcore.Locker) asynq.MiddlewareFunc {
				return asynqmw.Once(l, byPayload, asynqmw.OnceOptions{})
			}, 1},
			"exclusive": {func(l *lockcore.Locker) asynq.MiddlewareFunc {
				return asynqmw.Exclusive(l, byPayload, asynqmw.ExclusiveOptions{})
			}, 2},
		} {
			var g gauge
			begun := make(chan struct{}, 2)
			h := func(locks *lockcore.Locker) asynq.Handler {
				return tt.guard(locks)(g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
					begun <- struct{}{}
					if run == 1 {
						stubborn(1500 * time.Millisecond)
					}
					return nil
				}))
			}
			old := w.stopping(h)
			task := w.enqueue("charge", name)
			<-begun
			old.srv.Shutdown()
			next := w.node(h)
			info := w.ends(task, asynq.TaskStateCompleted)
			next.srv.Shutdown()
			w.noRetry(info)
			if runs, most := g.counts(); runs != tt.runs || most != 1 {
				w.Errorf("%s: %d runs, %d at once; want %d and 1", name, runs, most, tt.runs)
			}
		}
	})
}
