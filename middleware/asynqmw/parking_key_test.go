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
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The holder is not a task of asynq. Its release wakes a parked task at once, in the process that
// parked it and from another process, also long after the parking.
func TestParkingForeignHolder(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		foreign bool
		held    time.Duration
	}{
		"same process":       {foreign: false},
		"other process":      {foreign: true},
		"other process, 4 m": {foreign: true, held: 4 * time.Minute}, // longer than an unused subscription lasts
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story := func(w *world) {
				holder := w.locks
				if tt.foreign {
					holder = w.locker()
				}
				var g gauge
				o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait, Lease: 10 * time.Minute}}
				w.serve(w.parking(3), asynqmw.Exclusive(w.locks, byPayload, o)(g.handler(nothing)))
				var tasks []*asynq.TaskInfo
				err := guard.Exclusive(context.Background(), holder, "test:7", lockcore.Terms{}, func(context.Context) error {
					for range 2 {
						tasks = append(tasks, w.parked(w.enqueue("charge", "7")))
					}
					stubborn(tt.held)
					return nil
				})
				if err != nil {
					w.Fatal(err)
				}
				if took := w.all(tasks); w.late(took, soon) {
					w.Errorf("done after %v", took)
				}
				w.once(&g, 2)
			}
			if tt.held > 0 {
				inBubble(t, story)
			} else {
				both(t, story)
			}
		})
	}
}

// locker returns a Locker that takes the part of another process.
func (w *world) locker() *lockcore.Locker {
	w.Helper()
	locks, err := lockcore.New(w.lockRedis, lockcore.Options{NoGroups: true})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { _ = locks.Close(context.Background()) })
	return locks
}

// Two deployments of asynq share a key. Neither runs tasks of the other, and all tasks are done,
// also if both deployments have the same name.
func TestParkingDeployments(t *testing.T) {
	t.Parallel()
	for name, names := range map[string][2]string{"two names": {"a", "b"}, "same name": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			story := func(w *world, other *redis.Client) {
				x := &world{
					T: w.T, rdb: other, lockRedis: w.lockRedis, locks: w.locker(), heard: new(locktest.Recorder),
					client: asynq.NewClientFromRedisClient(other), inspect: asynq.NewInspectorFromRedisClient(other),
				}
				var g gauge
				lease := w.hold("test:7")
				var tasks [2][]*asynq.TaskInfo
				for i, d := range []*world{w, x} {
					h := asynqmw.Exclusive(d.locks, byPayload, parkAtOnce)(g.handler(func(_ context.Context, _ int, t *asynq.Task) error {
						if !strings.HasPrefix(t.ResultWriter().TaskID(), fmt.Sprint(i)) {
							w.Errorf("deployment %d runs %s", i, t.ResultWriter().TaskID())
						}
						return nil
					}))
					cfg := quick()
					cfg.Concurrency = 3
					d.serve(asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: d.inspect, Deployment: names[i]}), h)
				}
				for n := range 3 {
					for i, d := range []*world{w, x} {
						tasks[i] = append(tasks[i], d.parked(d.enqueue("charge", "7", asynq.TaskID(fmt.Sprint(i, "-", n)))))
					}
				}
				began := time.Now()
				_ = lease.Release(context.Background())
				w.all(tasks[0])
				x.all(tasks[1])
				if took := time.Since(began); w.late(took, 2*itself+2*soon) {
					w.Errorf("done after %v", took)
				}
				w.Logf("%s: done after %v", name, time.Since(began))
				w.once(&g, 6)
			}
			t.Run("memory", func(t *testing.T) {
				inBubble(t, func(w *world) { story(w, redistest.Bubble(w.T).Client(w.T)) })
			})
			t.Run("real", func(t *testing.T) {
				testlevel.Full(t)
				t.Parallel()
				story(newWorld(t, redistest.Real(t).Client(t)), redistest.Real(t).Client(t))
			})
		})
	}
}

// Tasks of two types use one key. One type first acquires a once key: its tasks are parked on the
// inner key, and free the once key.
func TestParkingNested(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		account := asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(g.handler(nothing))
		payment := asynqmw.Once(w.locks, asynqmw.ByTaskID(), asynqmw.OnceOptions{})(account)
		mux := asynq.NewServeMux()
		mux.Handle("charge", payment)
		mux.Handle("statement", account)
		lease := w.hold("test:7")
		w.serve(w.parking(3), mux)
		var tasks []*asynq.TaskInfo
		for _, kind := range []string{"charge", "statement", "charge", "statement"} {
			tasks = append(tasks, w.parked(w.enqueue(kind, "7")))
		}
		if n := w.entries("test:7"); n != 4 {
			w.Errorf("%d entries, want 4", n)
		}
		held, err := w.locks.Inspect(context.Background(), event.KindOnce, asynqmw.OnceKey("charge", guard.Key{ID: tasks[0].ID}))
		if err != nil || held.State != lockcore.StateFree {
			w.Errorf("the key outside is %+v, %v, want free", held, err)
		}
		_ = lease.Release(context.Background())
		if took := w.all(tasks); w.late(took, soon) {
			w.Errorf("done after %v", took)
		}
		w.once(&g, 4)
	})
}

// Two processes park duplicates of a task that runs. When it is done, all of them end without a
// run.
// Shows: A10
func TestParkingDuplicates(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		begun, finish := make(chan bool), make(chan bool)
		h := g.handler(func(context.Context, int, *asynq.Task) error {
			close(begun)
			<-finish
			return nil
		})
		for _, locks := range []*lockcore.Locker{w.locks, w.locker()} {
			o := asynqmw.OnceOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait, Lease: 15 * time.Second}}
			w.serve(w.parking(3), asynqmw.Once(locks, byPayload, o)(h))
		}
		tasks := []*asynq.TaskInfo{w.enqueue("charge", "7")}
		<-begun
		for range 100 {
			tasks = append(tasks, w.enqueue("charge", "7"))
		}
		for _, task := range tasks[1:] {
			w.parked(task)
		}
		close(finish)
		if took := w.all(tasks); w.late(took, soon) {
			w.Errorf("done after %v", took)
		}
		w.once(&g, 1)
	})
}

// A key has the maximum number of parked tasks. The next task is refused as without parking, and
// comes back soon.
func TestParkingFull(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		lease, _, g, _ := w.crowd(0)
		var entries []redis.Z
		for i := range 10_000 {
			entries = append(entries, redis.Z{Score: float64(time.Now().UnixMicro()), Member: fmt.Sprintf("other/q/%d", i)})
		}
		if err := w.rdb.ZAdd(context.Background(), w.exclusive("test:7").Stored[0]+":p", entries...).Err(); err != nil {
			w.Fatal(err)
		}
		task := w.enqueue("charge", "7", asynq.MaxRetry(1))
		info := w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateRetry })
		if strings.Contains(info.LastErr, "parked") || !strings.Contains(info.LastErr, `"test:7" is busy`) {
			w.Errorf("last error %q", info.LastErr)
		}
		_ = lease.Release(context.Background())
		w.all([]*asynq.TaskInfo{task})
		g.counts()
	})
}

// Only RetryLater parks, and it parks a task with NoWait at once.
func TestParkingPolicies(t *testing.T) {
	t.Parallel()
	for _, busy := range []asynqmw.ConflictPolicy{asynqmw.RetryLater, asynqmw.Skip, asynqmw.Drop, asynqmw.Fail} {
		inBubble(t, func(w *world) {
			w.hold("test:7")
			var g gauge
			w.serve(w.parking(3), asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: noWait, Busy: busy})(g.handler(nothing)))
			task := w.enqueue("charge", "7", asynq.MaxRetry(1))
			switch busy {
			case asynqmw.RetryLater:
				w.parked(task)
			case asynqmw.Skip:
				w.ends(task, asynq.TaskStateCompleted)
			case asynqmw.Drop:
				w.vanishes(task)
			case asynqmw.Fail:
				w.ends(task, asynq.TaskStateArchived)
			}
			parked := len(locktest.EventsOf[event.Parked](w.heard))
			if want := busy == asynqmw.RetryLater; want != (parked == 1) || want != (w.entries("test:7") == 1) {
				w.Errorf("%v: %d times parked, %d entries", busy, parked, w.entries("test:7"))
			}
			if n := len(locktest.EventsOf[event.Waiting](w.heard)); n != 0 {
				w.Errorf("%v: %d waited", busy, n)
			}
			g.counts()
		})
	}
}

// A TaskCheckInterval leaves a hot key idle. It is reported once, with a better value. Nothing is
// reported with that value, or without parked tasks.
func TestParkingCheckInterval(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		check time.Duration
		busy  bool
		want  string
	}{
		"too long":    {check: time.Second, busy: true, want: "50ms keeps it busy"},
		"recommended": {check: 50 * time.Millisecond, busy: true},
		"no conflict": {check: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				cfg := quick()
				cfg.Concurrency, cfg.TaskCheckInterval = 6, tt.check
				var g gauge
				w.serve(asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: w.inspect}),
					asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Terms: noWait})(g.handler(func(context.Context, int, *asynq.Task) error {
						stubborn(50 * time.Millisecond)
						return nil
					})))
				var tasks []*asynq.TaskInfo
				for i := range 10 {
					payload := "7"
					if !tt.busy {
						payload = fmt.Sprint(i)
					}
					tasks = append(tasks, w.enqueue("charge", payload))
				}
				w.all(tasks)
				var problems []string
				for _, e := range locktest.EventsOf[event.Misconfigured](w.heard) {
					problems = append(problems, e.Problem)
				}
				if tt.want == "" && len(problems) > 0 || tt.want != "" && (len(problems) != 1 || !strings.Contains(problems[0], tt.want) || !strings.Contains(problems[0], "TaskCheckInterval was 1s")) {
					w.Errorf("%q, want %q", problems, tt.want)
				}
			})
		})
	}
}

// ConfigureParking panics for a Parking that cannot work, with a text that names the mistake.
func TestParkingInvalid(t *testing.T) {
	i := new(asynq.Inspector)
	for want, o := range map[string]asynqmw.Parking{
		"Parking.Inspector is nil":                                  {},
		"Parking.Deployment is 129 bytes long, must be at most 128": {Inspector: i, Deployment: strings.Repeat("x", 129)},
	} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "asynqmw: ConfigureParking: ") || !strings.Contains(text, want) {
					t.Errorf("panic %q, want %q", text, want)
				}
			}()
			asynqmw.ConfigureParking(asynq.Config{}, o)
		}()
	}
}

// An Inspector uses another Redis and wakes no task. This is reported once.
func TestParkingOtherInspector(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		other := redistest.Bubble(w.T).Client(w.T)
		cfg := quick()
		cfg.Concurrency = 3
		lease := w.hold("test:7")
		w.serve(asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(other)}),
			asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(new(gauge).handler(nothing)))
		tasks := []*asynq.TaskInfo{w.parked(w.enqueue("charge", "7")), w.parked(w.enqueue("charge", "7"))}
		_ = lease.Release(context.Background())
		for _, task := range tasks { // they come back by themselves
			w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateCompleted })
		}
		n := 0
		for _, e := range locktest.EventsOf[event.Misconfigured](w.heard) {
			if strings.Contains(e.Problem, `Parking.Inspector does not know queue "default"`) {
				n++
			}
		}
		if n != 1 {
			w.Errorf("the Inspector is reported %d times, want once", n)
		}
	})
}
