package asynqmw_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// An operator deletes, archives or runs the first parked task. The other tasks are woken in order.
// The first task is not changed, or it is parked again at its place.
func TestParkingOperator(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(w *world, id string) error
		left asynq.TaskState // 0: the task runs too; -1: it does not exist
	}{
		"delete":  {do: func(w *world, id string) error { return w.inspect.DeleteTask("default", id) }, left: -1},
		"archive": {do: func(w *world, id string) error { return w.inspect.ArchiveTask("default", id) }, left: asynq.TaskStateArchived},
		"run":     {do: func(w *world, id string) error { return w.inspect.RunTask("default", id) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				lease, tasks, g, order := w.crowd(3)
				first, runs := tasks[0], tasks
				if err := tt.do(w, first.ID); err != nil {
					w.Fatal(err)
				}
				if tt.left != 0 {
					runs = tasks[1:]
				} else {
					w.until(first, func(*asynq.TaskInfo) bool { return len(locktest.EventsOf[event.Parked](w.heard)) == 4 })
					w.parked(first)
					if again := locktest.EventsOf[event.Parked](w.heard)[3]; !again.Again || again.Before != 0 || again.Count != 3 {
						w.Errorf("%+v, want it at its place", again)
					}
				}
				_ = lease.Release(context.Background())
				if took := w.all(runs); w.late(took, soon) {
					w.Errorf("done after %v", took)
				}
				for i, task := range runs {
					if id := <-order; w.virtual && id != task.ID { // in real time a task may have come back by itself
						w.Errorf("task %s ran as number %d, want %s", id, i, task.ID)
					}
				}
				w.once(g, len(runs))
				info, err := w.inspect.GetTaskInfo("default", first.ID)
				if tt.left == -1 && !errors.Is(err, asynq.ErrTaskNotFound) || tt.left > 0 && (err != nil || info.State != tt.left) {
					w.Errorf("the first task is %+v, %v", info, err)
				}
			})
		})
	}
}

// A server shuts down while tasks are parked. The last release of its handlers wakes one task, and
// all run on the next server.
func TestParkingShutdown(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		begun, finish := make(chan struct{}, 10), make(chan struct{})
		h := asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(g.handler(func(_ context.Context, run int, _ *asynq.Task) error {
			begun <- struct{}{}
			if run == 1 {
				<-finish
			}
			return nil
		}))
		old := w.serve(w.parking(3), h)
		tasks := []*asynq.TaskInfo{w.enqueue("charge", "7")}
		<-begun
		for range 3 {
			tasks = append(tasks, w.parked(w.enqueue("charge", "7")))
		}
		stopped := make(chan struct{})
		go func() {
			old.Shutdown()
			close(stopped)
		}()
		<-time.After(time.Second) // the server takes no more tasks
		close(finish)
		<-stopped
		w.state(asynq.TaskStateCompleted, tasks[0])
		w.state(asynq.TaskStatePending, tasks[1])
		w.serve(w.parking(3), h)
		if took := w.all(tasks); w.late(took, soon) {
			w.Errorf("done after %v", took)
		}
		w.once(&g, 4)
	})
}

// The last attempt of a task is never parked. It waits until shortly before its deadline, also if a
// third of the workers wait. If the key is still busy then, the task is archived with the name of
// the holder.
// Shows: A6
func TestParkingLastAttempt(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]asynq.Option{
		"no retries":   {asynq.MaxRetry(0)},
		"after others": {asynq.MaxRetry(1)}, // the first attempt fails
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				var g gauge
				var lease atomic.Pointer[lockcore.Lease]
				exclusive := asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(g.handler(nothing))
				w.serve(w.parking(3), asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
					retried, _ := asynq.GetRetryCount(ctx)
					if most, _ := asynq.GetMaxRetry(ctx); retried < most {
						return errBoom
					}
					return exclusive.ProcessTask(ctx, t)
				}))
				lease.Store(w.hold("test:7"))
				var tasks []*asynq.TaskInfo
				for i := range 3 { // there is room for one
					tasks = append(tasks, w.enqueue("charge", "7", append(opts, asynq.Timeout(time.Duration(4+4*min(i, 1))*time.Second))...))
				}
				if !w.eventually(func() bool { return len(locktest.EventsOf[event.Waiting](w.heard)) == 3 }) {
					w.Errorf("%d wait, want 3", len(locktest.EventsOf[event.Waiting](w.heard)))
				}
				info := w.ends(tasks[0], asynq.TaskStateArchived)
				if !strings.Contains(info.LastErr, "last attempt") || !strings.Contains(info.LastErr, `task "the-holder"`) {
					w.Errorf("last error %q", info.LastErr)
				}
				_ = lease.Load().Release(context.Background())
				for _, task := range tasks[1:] {
					w.ends(task, asynq.TaskStateCompleted)
				}
				if n := len(locktest.EventsOf[event.Parked](w.heard)); n != 0 {
					w.Errorf("%d times parked", n)
				}
				w.once(&g, 2)
			})
		})
	}
}

// A parked task with Deadline comes back before its deadline.
func TestParkingDeadline(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		deadline := time.Now().Truncate(time.Second).Add(9 * time.Second) // asynq stores whole seconds
		lease, tasks, g, _ := w.crowd(1, asynq.Deadline(deadline), asynq.MaxRetry(1))
		if before := deadline.Sub(tasks[0].NextProcessAt); before < time.Second || before > 3*time.Second {
			w.Errorf("it comes back %v before its deadline", before)
		}
		if !w.eventually(func() bool { return len(locktest.EventsOf[event.Parked](w.heard)) > 1 }) {
			w.Error("it did not come back")
		}
		_ = lease.Release(context.Background())
		w.all(tasks)
		if now := time.Now(); now.After(deadline) {
			w.Errorf("it is done %v after its deadline", now.Sub(deadline))
		}
		w.once(g, 1)
	})
}

// A task with Timeout has the full timeout in each delivery, so it may be parked for any time.
func TestParkingTimeout(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		lease, tasks, g, _ := w.crowd(1, asynq.Timeout(4*time.Second))
		if back := time.Until(tasks[0].NextProcessAt); back < itself {
			w.Errorf("it comes back in %v, want a lease", back)
		}
		_ = lease.Release(context.Background())
		w.all(tasks)
		w.once(g, 1)
	})
}

// The lock of asynq.Unique lasts while a task is parked, and not longer than its TTL.
func TestParkingUnique(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		lease, tasks, g, _ := w.crowd(1, asynq.Unique(5*time.Second))
		twin := asynq.NewTask("charge", []byte("7"))
		if _, err := w.client.Enqueue(twin, asynq.Unique(5*time.Second)); !errors.Is(err, asynq.ErrDuplicateTask) {
			w.Errorf("a second task while the first one is parked: %v, want a duplicate", err)
		}
		var info *asynq.TaskInfo
		if !w.eventually(func() bool {
			var err error
			info, err = w.client.Enqueue(twin, asynq.Unique(5*time.Second), asynq.Retention(time.Hour))
			return err == nil
		}) {
			w.Fatal("no second task after the TTL")
		}
		w.parked(info)
		_ = lease.Release(context.Background())
		w.all(append(tasks, info))
		w.once(g, 2)
	})
}

// Wakers died before they removed the entries of tasks that are no longer parked. No later waker
// runs these tasks, in any of their states.
// Shows: A8
func TestParkingStaleEntry(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		cfg := quick()
		cfg.Concurrency = 3
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
		w.serve(asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: w.inspect}),
			asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(g.handler(func(_ context.Context, _ int, t *asynq.Task) error {
				if t.Type() == "fails" {
					return errBoom
				}
				return nil
			})))
		hour := asynq.ProcessIn(time.Hour)
		lease := w.hold("test:7")
		completed, failed := w.parked(w.enqueue("charge", "7")), w.parked(w.enqueue("fails", "7"))
		archived, again := w.parked(w.enqueue("charge", "7")), w.parked(w.enqueue("charge", "7"))
		if err := w.inspect.ArchiveTask("default", archived.ID); err != nil {
			w.Fatal(err)
		}
		if err := w.inspect.DeleteTask("default", again.ID); err != nil {
			w.Fatal(err)
		}
		again = w.enqueue("charge", "7", asynq.TaskID(again.ID), hour)
		_ = lease.Release(context.Background())
		w.state(asynq.TaskStateCompleted, completed)
		w.until(failed, func(i *asynq.TaskInfo) bool { return i.Retried == 1 })
		w.once(&g, 2)

		tasks := []*asynq.TaskInfo{completed, failed, archived, again, w.enqueue("charge", "7", hour)}
		for i := range tasks {
			tasks[i] = w.until(tasks[i], func(*asynq.TaskInfo) bool { return true })
		}
		for _, i := range []int{0, 2} {
			if !strings.Contains(tasks[i].LastErr, `asynqmw: parked on key "test:7"`) {
				w.Errorf("task %d does not have the error of a parked task: %q", i, tasks[i].LastErr)
			}
		}
		for range testlevel.Pick(w.T, 20, 50, 200) { // of 5 tasks each
			lease = w.hold("test:7")
			for _, task := range tasks {
				if r, err := access.Of(w.locks).Backend.Park(context.Background(), backend.ParkRequest{
					Key: w.exclusive("test:7"), Entry: "/default/" + task.ID, Most: 10, Keep: time.Minute,
				}); err != nil || r.Outcome != backend.Parked {
					w.Fatal(r, err)
				}
			}
			_ = lease.Release(context.Background())
			if !w.eventually(func() bool { return w.entries("test:7") == 0 }) {
				w.Fatalf("%d entries are left", w.entries("test:7"))
			}
			for i, task := range tasks {
				if info := w.until(task, func(*asynq.TaskInfo) bool { return true }); info.State != task.State || !info.NextProcessAt.Equal(task.NextProcessAt) {
					w.Fatalf("task %d is %v, was %v", i, info.State, task.State)
				}
			}
		}
		w.once(&g, 2)
	})
}
