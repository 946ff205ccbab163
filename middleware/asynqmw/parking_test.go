package asynqmw_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// parking returns quick with parking.
func (w *world) parking(workers int) asynq.Config {
	cfg := quick()
	cfg.Concurrency = workers
	return asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: w.inspect})
}

// parked waits until the task is parked.
func (w *world) parked(task *asynq.TaskInfo) *asynq.TaskInfo {
	w.Helper()
	return w.until(task, func(i *asynq.TaskInfo) bool {
		return i.State == asynq.TaskStateRetry && strings.Contains(i.LastErr, "asynqmw: parked on ")
	})
}

// state waits until each task is in the state.
func (w *world) state(s asynq.TaskState, tasks ...*asynq.TaskInfo) {
	w.Helper()
	for _, task := range tasks {
		w.until(task, func(i *asynq.TaskInfo) bool { return i.State == s })
	}
}

// A third of the workers wait for a busy key. The other tasks of the key are parked, and run soon
// after the key is free. If one worker waits, they run in the order in which they were parked.
// Shows: A6
func TestParking(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		order := make(chan string, 10)
		h := g.handler(func(_ context.Context, _ int, t *asynq.Task) error {
			order <- t.ResultWriter().TaskID()
			return nil
		})
		lease := w.hold("test:7")
		w.serve(w.parking(3), asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: time.Minute}})(h))
		var tasks []*asynq.TaskInfo
		for i := range 5 {
			task := w.enqueue("charge", "7", asynq.MaxRetry(1))
			if tasks = append(tasks, task); i == 0 {
				w.waits() // asynq reports active before the task reaches the lock
			} else {
				info := w.parked(task)
				if want := fmt.Sprintf(`asynqmw: parked on key "test:7" with %d before it; held for `, i-1); !strings.HasPrefix(info.LastErr, want) || !strings.Contains(info.LastErr, `task "the-holder"`) {
					w.Errorf("last error %q, want %q and the holder", info.LastErr, want)
				}
				if left := time.Until(info.NextProcessAt); left < 29*time.Second || left > 40*time.Second || info.Retried != 0 {
					w.Errorf("it comes back in %v and has %d retries used up, want a lease and 0", left, info.Retried)
				}
			}
		}
		w.state(asynq.TaskStateActive, tasks[0])
		other := w.enqueue("charge", "8")
		w.ends(other, asynq.TaskStateCompleted) // other workers are free
		if id := <-order; id != other.ID {
			w.Errorf("task %s ran, want %s", id, other.ID)
		}
		began := time.Now()
		_ = lease.Release(context.Background())
		for i, task := range tasks {
			w.noRetry(w.ends(task, asynq.TaskStateCompleted))
			if id := <-order; w.virtual && id != task.ID { // in real time a task may have come back by itself
				w.Errorf("task %s ran as number %d, want %s", id, i, task.ID)
			}
		}
		if took := time.Since(began); w.late(took, 20*time.Second) {
			w.Errorf("all tasks were done after %v, which is no sooner than without being woken", took)
		}
		if _, most := g.counts(); most != 1 {
			w.Errorf("%d ran at once", most)
		}
		if n := len(locktest.EventsOf[event.Parked](w.heard)); n != 4 {
			w.Errorf("%d times parked, want 4", n)
		}
		if all := locktest.EventsOf[event.Unparked](w.heard); len(all) != 4 || all[3].Count != 0 || all[0].Parked <= 0 {
			w.Errorf("unparked %+v, want 4", all)
		}
	})
}

// Tasks that are parked on a once key are replayed when the key is done, and end.
// Shows: A10
func TestParkingOnce(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		running, finish := make(chan bool), make(chan bool)
		h := g.handler(func(context.Context, int, *asynq.Task) error {
			close(running)
			<-finish
			return nil
		})
		w.serve(w.parking(3), asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})(h))
		tasks := []*asynq.TaskInfo{w.enqueue("charge", "7")}
		<-running
		for range 20 {
			tasks = append(tasks, w.enqueue("charge", "7"))
		}
		for _, task := range tasks[1:] {
			if info := w.parked(task); !strings.Contains(info.LastErr, `parked on once key "charge/test:7"`) {
				w.Errorf("last error %q", info.LastErr)
			}
		}
		began := time.Now()
		close(finish)
		for _, task := range tasks {
			w.ends(task, asynq.TaskStateCompleted)
		}
		if took := time.Since(began); w.late(took, 20*time.Second) {
			w.Errorf("all tasks were done after %v, which is no sooner than without being woken", took)
		}
		if runs, _ := g.counts(); runs != 1 {
			w.Errorf("%d runs, want 1", runs)
		}
		if n := len(locktest.EventsOf[event.Unparked](w.heard)); n != 20 {
			w.Errorf("%d tasks left the parked ones, want 20", n)
		}
	})
}

// A task whose key is free costs two commands for its lock, as without parking, and no lookup of the
// task.
func TestParkingFreeKey(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var locks, lookups redistest.Counter
		counted := func(c *redistest.Counter) *redis.Client {
			return redistest.Bubble(w.T).Client(w.T, func(o *redis.Options) { o.Dialer = c.Dial(o.Dialer) })
		}
		l, err := lockcore.New(counted(&locks), lockcore.Options{NoGroups: true})
		if err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() { _ = l.Close(context.Background()) })
		w.serve(asynqmw.ConfigureParking(quick(), asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(counted(&lookups))}),
			asynqmw.Exclusive(l, byPayload, asynqmw.ExclusiveOptions{})(new(gauge).handler(nothing)))
		w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
		locks.Reset() // the first use of a script loads it
		for range 10 {
			w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
		}
		if got := locks.String(); got != "acquire 10, release 10" || lookups.String() != "" {
			w.Errorf("commands for locks %q and for lookups %q", got, lookups.String())
		}
	})
}
