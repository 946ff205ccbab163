package asynqmw_test

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// A worker is killed with SIGKILL in the middle of a task. Another task of its key runs when the lease is over, and is
// told that it takes over. With -long the test waits until asynq brings the killed worker's own task back, which takes 60 to
// 120 s by its constants: that task completes without a run, for its work is done.
func TestKilledWorker(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	server := redistest.Real(t)
	w := newWorld(t, server.Client(t))
	o := order{Asynq: server.Addr(), Locks: server.Addr(), Hang: true, Workers: 1, Terms: lockcore.Terms{Lease: time.Second}}
	victim := w.start(o)
	task := w.enqueue("charge", "7")
	if err := victim.serve(); err != nil {
		t.Fatal(err)
	}
	if line, err := victim.out.ReadString('\n'); err != nil || line != "begun\n" {
		t.Fatalf("the victim said %q, %v", line, err)
	}
	_ = victim.Process.Kill()
	_ = victim.Wait()

	var g gauge
	attempts := make(chan int, 1)
	once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Terms: o.Terms})
	w.serve(asynqmw.Configure(quick()), once(g.handler(func(ctx context.Context, _ int, _ *asynq.Task) error {
		attempt, tookOver := guard.Attempt(ctx, "charge/test:7")
		if !tookOver {
			t.Error("the handler is not told that it takes over")
		}
		attempts <- attempt
		return asynqmw.SetResult(ctx, []byte("receipt"))
	})))
	w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
	if got := <-attempts; got != 2 {
		t.Errorf("attempt %d, want 2", got)
	}
	if info := w.until(task, func(*asynq.TaskInfo) bool { return true }); info.State != asynq.TaskStateActive {
		t.Errorf("the victim's task is %v, want active: asynq does not know yet", info.State)
	}
	if !*long {
		return
	}
	killed := time.Now()
	var info *asynq.TaskInfo
	for range 6 { // each looks for 30 s
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
	t.Logf("asynq brought the task back after %v", time.Since(killed).Round(time.Second))
}
