package asynqmw_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// parkAtOnce has the terms of tasks that never wait in a worker. They come back by themselves 15 to
// 19 s after they were parked, which is longer than backend.WokenTime.
var parkAtOnce = asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait, Lease: 15 * time.Second}}

const (
	soon   = 5 * time.Second  // the longest time until a woken task has run
	itself = 14 * time.Second // the shortest time until a task comes back by itself
)

// crowd parks n tasks on the key test:7, which lease holds. Each task that runs sends its ID to
// order.
func (w *world) crowd(n int, opts ...asynq.Option) (lease *lockcore.Lease, tasks []*asynq.TaskInfo, g *gauge, order chan string) {
	w.Helper()
	g, order = new(gauge), make(chan string, 1000)
	h := asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(g.handler(func(_ context.Context, _ int, t *asynq.Task) error {
		order <- t.ResultWriter().TaskID()
		return nil
	}))
	lease = w.hold("test:7")
	cfg := w.parking(3)
	cfg.Queues = map[string]int{"default": 1, "other": 1}
	w.serve(cfg, h)
	for range n {
		tasks = append(tasks, w.parked(w.enqueue("charge", "7", opts...)))
	}
	return lease, tasks, g, order
}

// exclusive returns the backend's key for an exclusive key.
func (w *world) exclusive(name string) *backend.Key {
	key := access.Of(w.locks).Backend.Key(backend.KindExclusive, name)
	return &key
}

// entries returns the number of tasks that are parked on an exclusive key.
func (w *world) entries(name string) int {
	w.Helper()
	s, err := access.Of(w.locks).Backend.Inspect(context.Background(), w.exclusive(name), backend.NoRecord)
	if err != nil {
		w.Error(err)
	}
	return s.Parked
}

// all waits until all tasks are completed, checks noRetry for each, and returns the time that this
// took.
func (w *world) all(tasks []*asynq.TaskInfo) time.Duration {
	w.Helper()
	began := time.Now()
	for _, task := range tasks {
		w.noRetry(w.ends(task, asynq.TaskStateCompleted))
	}
	return time.Since(began)
}

// once checks that each of n tasks ran once, one at a time, and that none is parked.
func (w *world) once(g *gauge, n int) {
	w.Helper()
	if runs, most := g.counts(); runs != n || most != 1 {
		w.Errorf("%d runs of %d tasks, %d at once", runs, n, most)
	}
	if !w.eventually(func() bool { return w.entries("test:7") == 0 }) {
		w.Errorf("%d entries are left", w.entries("test:7"))
	}
}

// The data about the parked tasks is lost. The tasks come back by themselves.
// Shows: A7
func TestParkingLost(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world){
		"entries": func(w *world) { w.lockRedis.Del(context.Background(), w.exclusive("test:7").Stored[0]+":p") },
		"key":     func(w *world) { w.lockRedis.Del(context.Background(), w.exclusive("test:7").Stored[0]) },
		"server":  func(w *world) { w.lockRedis.FlushAll(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apart(t, func(w *apartWorld) {
				lease, tasks, g, _ := w.crowd(4)
				lose(w.world)
				_ = lease.Release(context.Background())
				if took := w.all(tasks); w.late(took, itself+10*time.Second) {
					w.Errorf("done after %v", took)
				}
				w.once(g, 4)
			})
		})
	}
}

// The Redis of asynq or of the locks stops replying when parked tasks should be woken. The tasks
// come back by themselves and use up no retry. Shutdown and Close return during a second outage.
// Shows: A7
func TestParkingOutage(t *testing.T) {
	t.Parallel()
	for name, silent := range map[string]func(w *apartWorld) *faulty.Network{
		"asynq": func(w *apartWorld) *faulty.Network { return w.asynqNet },
		"locks": func(w *apartWorld) *faulty.Network { return w.locksNet },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apart(t, func(w *apartWorld) {
				lease, tasks, g, _ := w.crowd(4)
				net := silent(w)
				net.Silence()
				_ = lease.Release(context.Background())
				<-time.After(5 * time.Second)
				net.Heal()
				if took := w.all(tasks); w.late(took, itself+10*time.Second) {
					w.Errorf("done after %v", took)
				}
				w.once(g, 4)

				lease = w.hold("test:7")
				w.parked(w.enqueue("charge", "7"))
				net.Silence()
				_ = lease.Release(context.Background())
				began := time.Now()
				w.servers[0].Shutdown()
				if took := time.Since(began); net == w.locksNet && w.late(took, time.Second) { // asynq waits for its own Redis
					w.Errorf("Shutdown took %v", took)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				began = time.Now()
				_ = w.locks.Close(ctx) // the release may not have arrived
				if took := time.Since(began); w.late(took, 6*time.Second) {
					w.Errorf("Close took %v", took)
				}
				net.Heal()
				<-time.After(10 * time.Second) // so that wakers end, and go-redis finds the server again
			})
		})
	}
}

// apartWorld is a world whose locks are in another Redis.
type apartWorld struct {
	*world
	asynqNet, locksNet *faulty.Network
}

// apart is both for an apartWorld. Redis calls time out after 500 ms, on a real server after 2 s.
func apart(t *testing.T, story func(w *apartWorld)) {
	t.Helper()
	build := func(t *testing.T, timeout time.Duration, client func(edit ...func(*redis.Options)) *redis.Client) *apartWorld {
		t.Helper()
		w := &apartWorld{asynqNet: faulty.New(t), locksNet: faulty.New(t)}
		behind := func(f *faulty.Network) *redis.Client {
			return client(func(o *redis.Options) {
				if o.Dialer == nil {
					o.Dialer = redis.NewDialer(o)
				}
				o.Dialer = f.Dial(o.Dialer)
				o.ReadTimeout, o.MaxRetries = timeout, -1
			})
		}
		w.world = newWorldOn(t, behind(w.asynqNet), behind(w.locksNet))
		return w
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			w := build(t, 500*time.Millisecond, func(edit ...func(*redis.Options)) *redis.Client { return bubble(t).Client(t, edit...) })
			w.virtual = true
			story(w)
		})
	})
	t.Run("real", func(t *testing.T) {
		testlevel.Campaign(t) // in real time
		t.Parallel()
		story(build(t, 2*time.Second, func(edit ...func(*redis.Options)) *redis.Client { return redistest.Real(t).Client(t, edit...) }))
	})
}

// The locks are in a Cluster.
func TestParkingCluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	w := newWorldOn(t, redistest.Real(t).Client(t), redistest.Cluster(t).Client(t))
	lease, tasks, g, order := w.crowd(5)
	_ = lease.Release(context.Background())
	if took := w.all(tasks); w.late(took, soon) {
		t.Errorf("done after %v", took)
	}
	for i, task := range tasks {
		if id := <-order; w.virtual && id != task.ID { // in real time a task may have come back by itself
			t.Errorf("task %s ran as number %d, want %s", id, i, task.ID)
		}
	}
	w.once(g, 5)
}

// The Redis of the Inspector never replies. Handlers begin and end without a delay, also those of
// parked tasks. Shutdown returns without a delay.
func TestParkingInspectorHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		net := faulty.New(w.T)
		server := redistest.Bubble(w.T)
		hanging := server.Client(w.T, func(o *redis.Options) { o.Dialer = net.Dial(o.Dialer) })
		net.Silence()
		cfg := quick()
		cfg.Concurrency = 3
		var g gauge
		o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait, Lease: 5 * time.Second}}
		h := asynqmw.Exclusive(w.locks, byPayload, o)(g.handler(func(context.Context, int, *asynq.Task) error {
			stubborn(time.Second)
			return nil
		}))
		var longest atomic.Int64
		srv := w.serve(asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(hanging)}),
			asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
				began := time.Now()
				err := h.ProcessTask(ctx, t)
				longest.Store(max(longest.Load(), int64(time.Since(began))))
				return err
			}))
		var tasks []*asynq.TaskInfo
		lease := w.hold("test:7")
		for range 2 {
			tasks = append(tasks, w.parked(w.enqueue("charge", "7")))
		}
		_ = lease.Release(context.Background())
		w.all(tasks)
		w.once(&g, 2)
		w.hold("test:7")
		w.parked(w.enqueue("charge", "7"))
		if d := time.Duration(longest.Load()); w.late(d, 1100*time.Millisecond) {
			w.Errorf("a delivery took %v, want the 1 s of the handler", d)
		}
		began := time.Now()
		srv.Shutdown()
		if took := time.Since(began); w.late(took, time.Second) {
			w.Errorf("Shutdown took %v", took)
		}
		net.Heal()
		<-time.After(10 * time.Second) // so that wakers end, and go-redis finds the server again
	})
}

// The queue of a woken task is paused. The tasks of another queue run when the first of them comes
// back by itself, although the paused task counts as woken until then.
func TestParkingPaused(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		lease, tasks, g, _ := w.crowd(1, asynq.Queue("other"))
		var more []*asynq.TaskInfo
		for range 10 {
			more = append(more, w.parked(w.enqueue("charge", "7")))
		}
		if err := w.inspect.PauseQueue("other"); err != nil {
			w.Fatal(err)
		}
		_ = lease.Release(context.Background())
		if took := w.all(more); w.late(took, itself+2*soon) {
			w.Errorf("the other queue's tasks are done after %v", took)
		}
		if runs, _ := g.counts(); runs != 10 {
			w.Errorf("%d runs, want 10", runs)
		}
		if err := w.inspect.UnpauseQueue("other"); err != nil {
			w.Fatal(err)
		}
		w.all(tasks)
		w.once(g, 11)
	})
}
