package asynqmw_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Two processes, and a holder that is not a task, share hot keys. The Inspectors are slow, so holds
// begin and end while wakers work on the key. Every parked task is woken: a task that had to come
// back by itself, after 10 min, would fail the test.
// Shows: A9
func TestParkingWakesAll(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		wait  time.Duration
		pairs bool
	}{
		"NoWait": {wait: lockcore.NoWait}, "200 ms": {wait: 200 * time.Millisecond},
		"pairs, NoWait": {lockcore.NoWait, true}, "pairs, 200 ms": {200 * time.Millisecond, true},
	} {
		t.Run(name+"/memory", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { wakesAll(t, tt.wait, tt.pairs, bubble(t).Client) })
		})
		t.Run(name+"/real", func(t *testing.T) {
			testlevel.Campaign(t)
			t.Parallel()
			wakesAll(t, tt.wait, tt.pairs, redistest.Real(t).Client)
		})
	}
}

// wakesAll enqueues tasks with one key, or with two keys if pairs is true.
func wakesAll(t *testing.T, wait time.Duration, pairs bool, client func(testing.TB, ...func(*redis.Options)) *redis.Client) {
	t.Helper()
	w := newWorld(t, client(t))
	var keys [3]gauge
	o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: wait, Lease: 10 * time.Minute}}
	for _, locks := range []*lockcore.Locker{w.locks, w.locker()} {
		net := faulty.New(t)
		net.DelayFunc(func() time.Duration { return rand.N(10 * time.Millisecond) })
		inspect := asynq.NewInspectorFromRedisClient(client(t, func(o *redis.Options) {
			if o.Dialer == nil {
				o.Dialer = redis.NewDialer(o)
			}
			o.Dialer = net.Dial(o.Dialer)
			o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // it dials under a mutex, which would block the bubble
		}))
		cfg := quick()
		cfg.Concurrency, cfg.TaskCheckInterval = 6, 10*time.Millisecond
		w.serve(asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: inspect}),
			asynqmw.ExclusiveAll(locks, eachPart, o)(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
				for key := range strings.SplitSeq(string(t.Payload()), ",") {
					g := &keys[key[0]-'0']
					g.enter()
					defer g.leave()
				}
				stubborn(rand.N(20 * time.Millisecond))
				return nil
			})))
	}
	foreign := w.locker()
	var tasks []*asynq.TaskInfo
	for i := range 90 {
		first := rand.N(len(keys))
		key := fmt.Sprint(first)
		payload := key
		if pairs {
			payload += fmt.Sprint(",", (first+1+rand.N(len(keys)-1))%len(keys))
		}
		tasks = append(tasks, w.enqueue("charge", payload))
		if i%10 == 0 {
			if lease, err := foreign.Acquire(context.Background(), "test:"+key, lockcore.Terms{Wait: time.Minute}); err != nil {
				t.Error(err)
			} else {
				stubborn(rand.N(30 * time.Millisecond))
				_ = lease.Release(context.Background())
			}
		}
		stubborn(rand.N(10 * time.Millisecond))
	}
	w.all(tasks)
	for i := range keys {
		if _, most := keys[i].counts(); most > 1 {
			t.Errorf("%d at once", most)
		}
	}
}

// A waker has checked a parked task, and before its RunTask the task comes back by itself and is
// done. With Retention asynq then delivers the task again. Its handler does not run again.
func TestParkingRunsOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		once    bool
		keep    time.Duration
		skipped int
	}{
		"Exclusive, Retention":    {keep: time.Hour, skipped: 1},
		"Exclusive, no Retention": {},
		"Once, Retention":         {once: true, keep: time.Hour, skipped: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, net := bubble(t), faulty.New(t)
				w := newWorld(t, server.Client(t))
				w.inspect = asynq.NewInspectorFromRedisClient(server.Client(t, func(o *redis.Options) {
					o.Dialer, o.ReadTimeout = net.Dial(o.Dialer), time.Minute
				}))
				var g gauge
				h := g.handler(nothing)
				if tt.once {
					h = asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Terms: lockcore.Terms{Name: "outer", Wait: lockcore.NoWait}})(h)
				}
				w.serve(w.parking(3), asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(h))
				lease := w.hold("test:7")
				task := w.enqueue("charge", "7", asynq.Retention(tt.keep))
				w.parked(task)
				run := net.Hold(func(r faulty.Request) bool { return r.About(task.ID) && r.About(":groups") }) // RunTask
				_ = lease.Release(context.Background())
				<-run.Struck()
				if !w.eventually(func() bool { runs, _ := g.counts(); return runs == 1 }) {
					t.Error("the task did not come back by itself")
				}
				synctest.Wait()
				run.Deliver()
				<-time.After(time.Second)
				if runs, most := g.counts(); runs != 1 || most != 1 {
					t.Errorf("%d runs, %d at once; want 1", runs, most)
				}
				skipped := locktest.EventsOf[event.RerunSkipped](w.heard)
				if len(skipped) != tt.skipped {
					t.Fatalf("%d reruns skipped, want %d", len(skipped), tt.skipped)
				}
				for _, e := range skipped {
					if e.Key != "test:7" || e.Kind != event.KindExclusive || e.Completed <= 0 || e.Completed >= 30*time.Second {
						t.Errorf("%+v", e)
					}
				}
			})
		})
	}
}

// A waker finds that a task is not parked on its key. Before it removes the entry, the task is
// parked on the key again. The entry stays, so the end of the next hold wakes the task.
// Shows: A8
func TestParkingRemovesNoNewEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, inspectNet, locksNet := bubble(t), faulty.New(t), faulty.New(t)
		behind := func(f *faulty.Network) *redis.Client {
			return server.Client(t, func(o *redis.Options) { o.Dialer, o.ReadTimeout = f.Dial(o.Dialer), time.Minute })
		}
		w := newWorldOn(t, server.Client(t), behind(locksNet))
		w.virtual = true
		var g gauge
		w.serve(asynqmw.ConfigureParking(quick(), asynqmw.Parking{Inspector: asynq.NewInspectorFromRedisClient(behind(inspectNet))}),
			asynqmw.ExclusiveAll(w.locks, eachPart, parkAtOnce)(g.handler(nothing)))
		parkedOn := func(task *asynq.TaskInfo, key string) {
			w.until(task, func(i *asynq.TaskInfo) bool {
				return i.State == asynq.TaskStateRetry && strings.Contains(i.LastErr, fmt.Sprintf("parked on key %q", key))
			})
		}
		first, second := w.hold("test:0"), w.hold("test:1")
		task := w.enqueue("transfer", "0,1")
		parkedOn(task, "test:0")

		lookup := inspectNet.Hold(func(r faulty.Request) bool { return r.About(task.ID) })
		_ = first.Release(context.Background())
		<-lookup.Struck()
		if err := w.inspect.RunTask(task.Queue, task.ID); err != nil {
			t.Fatal(err)
		}
		parkedOn(task, "test:1")
		first = w.hold("test:0")
		removal := locksNet.Hold(func(r faulty.Request) bool { return r.Script == "unpark" && r.About(task.ID) })
		lookup.Deliver()
		<-removal.Struck()
		_ = second.Release(context.Background())
		parkedOn(task, "test:0")
		removal.Deliver()
		<-removal.Replied()
		if n := w.entries("test:0"); n != 1 {
			t.Errorf("%d parked entries, want that of the task", n)
		}
		_ = first.Release(context.Background())
		if took := w.all([]*asynq.TaskInfo{task}); took > soon {
			t.Errorf("done after %v", took)
		}
	})
}

// A wake reaches asynq's Redis after the task has come back, run and completed, for example because
// the connection of the Inspector was cut. asynq then runs the completed task again. The guard does
// not run its handler a second time. A completed task that an operator runs later runs again.
func TestLateWake(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		lease, tasks, g, _ := w.crowd(1)
		_ = lease.Release(context.Background())
		late := w.ends(tasks[0], asynq.TaskStateCompleted)
		lease = w.hold("test:7")
		next := w.parked(w.enqueue("charge", "7"))
		if err := w.inspect.RunTask(late.Queue, late.ID); err != nil {
			w.Fatal(err)
		}
		w.until(late, func(i *asynq.TaskInfo) bool {
			return i.State == asynq.TaskStateCompleted || i.State == asynq.TaskStateRetry
		})
		_ = lease.Release(context.Background())
		w.ends(next, asynq.TaskStateCompleted)
		w.ends(late, asynq.TaskStateCompleted)
		w.once(g, 2)
		if !w.virtual {
			return
		}
		time.Sleep(time.Minute)
		if err := w.inspect.RunTask(late.Queue, late.ID); err != nil {
			w.Fatal(err)
		}
		w.eventually(func() bool { runs, _ := g.counts(); return runs == 3 })
		w.once(g, 3)
	})
}
