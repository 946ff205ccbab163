package asynqmw_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A hot key with default options: 20 workers in 2 processes, and 200 tasks of 50 ms that all use one
// account. All tasks are done, one at a time, with at most 1.2 deliveries and 12 lock commands per
// task. They take at most 1.3 times the time of the work alone. The result with NoWait is logged for
// comparison.
// Shows: A5
func TestHotKey(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	const tasks = 200
	r := contend(t, tasks, lockcore.Terms{}, time.Minute)
	if r.done != tasks || r.Runs != tasks || r.Overlaps != 0 {
		t.Errorf("%d of %d done, %d runs, %d overlaps", r.done, tasks, r.Runs, r.Overlaps)
	}
	if each := r.per(r.Deliveries); each > 1.2 {
		t.Errorf("%.2f deliveries per task, want at most 1.2", each)
	}
	if each := r.per(r.Commands); each > 12 {
		t.Errorf("%.2f lock commands per task, want at most 12", each)
	}
	if r.factor() > 1.3 {
		t.Errorf("%.2f times the work alone, want at most 1.3", r.factor())
	}
	contend(t, tasks, lockcore.Terms{Wait: lockcore.NoWait}, time.Minute)
}

// result is the work of both processes, and the time that it took.
type result struct {
	account

	tasks, done int
	took        time.Duration
}

func (r result) per(n int) float64 { return float64(n) / float64(r.tasks) }

func (r result) factor() float64 {
	return r.took.Seconds() / (float64(r.tasks) * 0.05)
}

// contend runs the tasks of one key in two processes with ten workers each, for at most limit.
func contend(t *testing.T, tasks int, terms lockcore.Terms, limit time.Duration) result {
	t.Helper()
	queue, locks := redistest.Real(t), redistest.Real(t)
	w := newWorld(t, queue.Client(t))
	var workers []*childProcess
	for range 2 {
		workers = append(workers, w.start(order{Asynq: queue.Addr(), Locks: locks.Addr(), Workers: 10, Terms: terms}))
	}
	for range tasks {
		w.enqueue("charge", "42")
	}
	r := result{tasks: tasks}
	began := time.Now()
	for _, p := range workers {
		p.serve()
	}
	for time.Since(began) < limit && r.done < tasks {
		w.eventually(func() bool {
			info, err := w.inspect.GetQueueInfo("default")
			if err != nil {
				t.Fatal(err)
			}
			r.done = info.Completed
			return r.done == tasks
		})
	}
	for i, p := range workers {
		p.Close()
		a, ok := <-p.said
		if !ok {
			t.Fatalf("worker %d has ended without a word", i)
		}
		r.Deliveries += a.Deliveries
		r.Runs += a.Runs
		r.Overlaps += a.Overlaps
		r.Commands += a.Commands
		r.took = max(r.took, a.End.Sub(began))
	}
	t.Logf("wait %v: %d of %d tasks done in %v, %.2f times the work alone; %.2f deliveries and %.2f lock commands per task; runs %d, overlaps %d",
		terms.Wait, r.done, tasks, r.took.Round(time.Millisecond), r.factor(), r.per(r.Deliveries), r.per(r.Commands), r.Runs, r.Overlaps)
	if info, err := w.inspect.GetQueueInfo("default"); err == nil && info.Archived+info.Retry > 0 {
		t.Logf("%d archived, %d in retry", info.Archived, info.Retry)
	}
	return r
}
