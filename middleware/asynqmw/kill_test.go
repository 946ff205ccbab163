package asynqmw_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// A worker is killed with SIGKILL during a task. When the lease is over, another task of the key
// runs and takes over. After 60 to 120 s asynq returns the killed worker's task to the queue. That
// task completes without a run, because its key is done.
// Shows: A4
func TestKilledWorker(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	server := redistest.Real(t)
	w := newWorld(t, server.Client(t))
	o := order{Asynq: server.Addr(), Locks: server.Addr(), Hang: true, Workers: 1, Terms: lockcore.Terms{Lease: time.Second}}
	victim := w.start(o)
	task := w.enqueue("charge", "7")
	victim.serve()
	if _, ok := <-victim.said; !ok {
		t.Fatal("the victim has ended")
	}
	victim.Kill()

	var g gauge
	attempts := make(chan int, 1)
	once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Terms: o.Terms})
	w.serve(asynqmw.Configure(quick()), once(g.handler(func(ctx context.Context, _ int, _ *asynq.Task) error {
		attempt, tookOver := guard.Attempt(ctx, "charge/test:7")
		if !tookOver {
			t.Error("guard.Attempt does not report the takeover")
		}
		attempts <- attempt
		return asynqmw.SetResult(ctx, []byte("receipt"))
	})))
	w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
	if got := <-attempts; got != 2 {
		t.Errorf("attempt %d, want 2", got)
	}
	if info := w.until(task, func(*asynq.TaskInfo) bool { return true }); info.State != asynq.TaskStateActive {
		t.Errorf("the victim's task is %v, want active: asynq has not noticed the kill yet", info.State)
	}
	killed := time.Now()
	var info *asynq.TaskInfo
	for range 6 { // each waits for up to 2 min
		if w.eventually(func() bool {
			info, _ = w.inspect.GetTaskInfo(task.Queue, task.ID)
			return info == nil || info.State != asynq.TaskStateActive && info.State != asynq.TaskStateRetry && info.State != asynq.TaskStatePending
		}) {
			break
		}
	}
	if info == nil || info.State != asynq.TaskStateCompleted || info.Retried != 1 || string(info.Result) != "receipt" {
		t.Errorf("the victim's task is %+v, want completed with the receipt, retried once", info)
	}
	if runs, _ := g.counts(); runs != 1 {
		t.Errorf("%d runs after the kill, want 1", runs)
	}
	t.Logf("asynq returned the task to the queue after %v", time.Since(killed).Round(time.Second))
}

// A process is killed with SIGKILL at a random moment while it wakes parked tasks. A release gives
// its task the key, and at the beginning of that hold the process wakes the next task. All parked
// tasks run, one at a time.
// Shows: A7
func TestKilledWaker(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	server := redistest.Real(t)
	w := newWorld(t, server.Client(t))
	terms := lockcore.Terms{Wait: 10 * time.Second, Lease: time.Second}
	var g gauge
	o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait, Lease: time.Second}}
	w.serve(w.parking(3), asynqmw.Exclusive(w.locks, byPayload, o)(g.handler(func(context.Context, int, *asynq.Task) error {
		time.Sleep(time.Millisecond)
		return nil
	})))
	died := map[string]int{}
	const rounds = 100
	for range rounds {
		victim := w.start(order{Asynq: server.Addr(), Locks: server.Addr(), Workers: 3, Terms: terms, Parks: "victim"})
		lease := w.hold("test:7")
		var tasks []*asynq.TaskInfo
		for range 3 {
			tasks = append(tasks, w.parked(w.enqueue("charge", "7")))
		}
		w.enqueue("charge", "7", asynq.Queue("victim"))
		victim.serve()
		if !w.eventually(func() bool {
			h, err := w.locks.Inspect(t.Context(), event.KindExclusive, "test:7")
			return err == nil && h.Queue > 0
		}) {
			t.Fatal("the victim does not wait")
		}
		_ = lease.Release(t.Context())
		time.Sleep(rand.N(3 * time.Millisecond))
		victim.Kill()
		info := w.until(tasks[0], func(*asynq.TaskInfo) bool { return true })
		marked, err := w.rdb.ZCard(t.Context(), w.exclusive("test:7").Stored[0]+":w").Result()
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case info.State != asynq.TaskStateRetry:
			died["after it woke the task"]++
		case marked > 0:
			died["after it marked the task"]++
		default:
			died["before"]++
		}
		for _, task := range tasks {
			w.ends(task, asynq.TaskStateCompleted)
		}
	}
	w.once(&g, 3*rounds)
	t.Logf("the victim died %v", died)
}
