package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// tenantAndAll returns a LimitsFunc with the keys all:1 and tenant:PAYLOAD.
func tenantAndAll(tenant, all int) asynqmw.LimitsFunc {
	return func(_ context.Context, t *asynq.Task) ([]asynqmw.KeyLimit, error) {
		return []asynqmw.KeyLimit{
			{Key: guard.Key{Class: "all", ID: "1"}, Limit: lockcore.Limit{N: all}},
			{Key: guard.Key{Class: "tenant", ID: string(t.Payload())}, Limit: lockcore.Limit{N: tenant}},
		}, nil
	}
}

// Two servers run the tasks of three tenants, whose limits are together more than the limit of all.
// No limit is exceeded, each task runs once, and no retry is used up. This holds for tasks that wait
// in their workers, and for tasks that never wait.
func TestLimitedAllParking(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"waits": 0, "never waits": lockcore.NoWait} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				const tasks, tenants, tenant, total = 20, 3, 3, 5
				var sum gauge
				var each [tenants]gauge
				h := asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
					guard.MustHold(ctx, "all:1")
					guard.MustHold(ctx, "tenant:"+string(t.Payload()))
					g := &each[t.Payload()[0]-'0']
					g.enter()
					defer g.leave()
					sum.enter()
					defer sum.leave()
					stubborn(20 * time.Millisecond)
					return nil
				})
				o := asynqmw.ShareOptions{Terms: lockcore.Terms{Wait: wait, Lease: 10 * time.Minute}}
				for _, locks := range []*lockcore.Locker{w.locks, w.locker()} {
					w.serve(w.parking(9), asynqmw.LimitedAll(locks, tenantAndAll(tenant, total), o)(h))
				}
				var all []*asynq.TaskInfo
				for i := range tasks * tenants {
					all = append(all, w.enqueue("charge", fmt.Sprint(i%tenants)))
				}
				took := w.all(all)
				if w.late(took, time.Minute) { // a task that is not woken comes back after 10 min
					w.Errorf("done after %v", took)
				}
				runs, most := sum.counts()
				if runs < len(all) || most > total || w.virtual && (runs > len(all) || most < total) { // see TestLimitedParking
					w.Errorf("%d runs, %d at once; want %d and %d", runs, most, len(all), total)
				}
				for i := range each {
					if _, most := each[i].counts(); most > tenant {
						w.Errorf("%d of tenant %d at once, want %d", most, i, tenant)
					}
					if n := w.entries(fmt.Sprint("tenant:", i)); n != 0 {
						w.Errorf("%d entries are left", n)
					}
				}
				if n := w.entries("all:1"); n != 0 {
					w.Errorf("%d entries are left", n)
				}
				w.Logf("done after %v, parked %d times", took, len(locktest.EventsOf[event.Parked](w.heard)))
			})
		})
	}
}

// A task is parked on the key that has no room, and holds no permit of the other one. The release of
// a permit wakes it.
// Shows: A9
func TestLimitedAllParks(t *testing.T) {
	t.Parallel()
	for busy, other := range map[string]string{"all:1": "tenant:7", "tenant:7": "all:1"} {
		t.Run(busy, func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				lease := w.hold(busy)
				w.serve(w.parking(3), asynqmw.LimitedAll(w.locks, tenantAndAll(1, 2), asynqmw.ShareOptions{Terms: parkAtOnce.Terms})(new(gauge).handler(nothing)))
				task := w.parked(w.enqueue("charge", "7"))
				if want := fmt.Sprintf("asynqmw: parked on key %q with 0 before it; held for ", busy); !strings.HasPrefix(task.LastErr, want) {
					w.Errorf("last error %q, want %q", task.LastErr, want)
				}
				if n, m := w.entries(busy), w.entries(other); n != 1 || m != 0 {
					w.Errorf("%d entries on the busy key and %d on the other one, want 1 and 0", n, m)
				}
				if err := guard.Exclusive(context.Background(), w.locker(), other, noWait, func(context.Context) error { return nil }); err != nil {
					w.Error(err)
				}
				_ = lease.Release(context.Background())
				if took := w.all([]*asynq.TaskInfo{task}); w.late(took, soon) {
					w.Errorf("done after %v", took)
				}
				if n := w.entries(busy) + w.entries(other); n != 0 {
					w.Errorf("%d entries are left", n)
				}
			})
		})
	}
}

// A task without valid keys and limits does not run. asynq gets an error with the reason, and the
// Observer gets NoKey. A task whose LimitsFunc returns Unguarded runs.
func TestLimitedAllKeys(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		key := func(id string, n int) asynqmw.KeyLimit {
			return asynqmw.KeyLimit{Key: guard.Key{Class: "test", ID: id}, Limit: lockcore.Limit{N: n}}
		}
		many := make([]asynqmw.KeyLimit, 17)
		for i := range many {
			many[i] = key(fmt.Sprint(i), 3)
		}
		for name, tt := range map[string]struct {
			limits []asynqmw.KeyLimit
			err    error
			want   string // "": the task runs
		}{
			"none":          {want: `no key for a task of type "charge": the task has 0 different keys, must have between 1 and 16`},
			"17":            {limits: many, want: "the task has 17 different keys"},
			"16, one twice": {limits: append(many[:16:16], many[3])},
			"empty":         {limits: []asynqmw.KeyLimit{key("a", 1), key("", 1)}, want: "Key.ID is empty"},
			"no limit":      {limits: []asynqmw.KeyLimit{key("a", 1), key("b", 0)}, want: `no limit for a task of type "charge": the limit of key "test:b": Limit.N is 0, must be between 1 and 1000000`},
			"two limits":    {limits: []asynqmw.KeyLimit{key("a", 1), key("a", 2)}, want: `key "test:a" has the limits {N:1 Weight:0 `},
			"error":         {err: errBoom, want: "boom"},
			"Unguarded":     {err: guard.Unguarded},
		} {
			var g gauge
			all := asynqmw.LimitedAll(w.locks, func(context.Context, *asynq.Task) ([]asynqmw.KeyLimit, error) { return tt.limits, tt.err }, asynqmw.ShareOptions{})
			err := all(g.handler(nothing)).ProcessTask(w.Context(), asynq.NewTask("charge", nil))
			runs, _ := g.counts()
			if tt.want == "" && (err != nil || runs != 1) {
				w.Errorf("%s: %v, %d runs", name, err, runs)
			}
			if tt.want != "" && (!errors.Is(err, lockcore.ErrNotRun) || !strings.Contains(fmt.Sprint(err), tt.want) || runs != 0) {
				w.Errorf("%s: %v, %d runs; want %q", name, err, runs, tt.want)
			}
		}
		if n := len(locktest.EventsOf[event.NoKey](w.heard)); n != 6 {
			w.Errorf("NoKey %d times, want 6", n)
		}
		defer func() {
			if got, want := fmt.Sprint(recover()), "asynqmw: LimitedAll: limits must not be nil; ShareOptions.Busy is 9"; !strings.Contains(got, want) {
				w.Errorf("panic %q, want %q", got, want)
			}
		}()
		asynqmw.LimitedAll(w.locks, nil, asynqmw.ShareOptions{Busy: 9})
	})
}

// 20 keys have more tasks than the workers can run. Half of the keys have the weight 3, and get
// three times as many runs as the others.
func TestParkingWeight(t *testing.T) {
	testlevel.Full(t) // it needs ten seconds of a processor
	t.Parallel()
	inBubble(t, func(w *world) {
		const keys, light, from, to = 20, 30, 100, 500 // the runs from 100 to 500 count
		var runs, heavy atomic.Int64
		counted := make(chan bool)
		h := asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
			n := runs.Add(1)
			if n > from && n <= to && t.Payload()[0] == 'h' {
				heavy.Add(1)
			}
			if n == to {
				close(counted)
			}
			stubborn(time.Duration(100+n*37%100) * time.Millisecond)
			return nil
		})
		cfg := quick()
		cfg.Concurrency = 10
		cfg = asynqmw.ConfigureParking(cfg, asynqmw.Parking{Inspector: w.inspect, Weight: func(k guard.Key) int {
			if k.Class == "test" && k.ID[0] == 'h' {
				return 3
			}
			return 1
		}})
		o := asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: time.Minute, Lease: time.Hour}}
		var leases []*lockcore.Lease
		tasks := 0
		for i := range keys {
			key, n := fmt.Sprint("h", i), 3*light
			if i%2 == 1 {
				key, n = fmt.Sprint("l", i), light
			}
			leases = append(leases, w.hold("test:"+key))
			for range n {
				w.enqueue("charge", key)
				tasks++
			}
		}
		w.serve(cfg, asynqmw.Exclusive(w.locks, byPayload, o)(h))
		if !w.eventually(func() bool { return len(locktest.EventsOf[event.Parked](w.heard)) == tasks-3 }) { // three wait
			w.Fatal("not all tasks are parked")
		}
		for _, l := range leases {
			_ = l.Release(context.Background())
		}
		<-counted
		share := float64(heavy.Load()) / float64(to-from-heavy.Load())
		w.Logf("%.2f to 1", share)
		if share < 2.7 || share > 3.3 {
			w.Errorf("%.2f to 1, want 3", share)
		}
	})
}

// Parking.Weight returns a number that is not valid. The tasks run, and the Observer gets
// Misconfigured, once for the server.
func TestParkingBadWeight(t *testing.T) {
	t.Parallel()
	for weight, want := range map[int]string{0: "between 1 and 100: 1 is used", -3: "1 is used", 101: "100 is used", 100: ""} {
		inBubble(t, func(w *world) {
			cfg := asynqmw.ConfigureParking(quick(), asynqmw.Parking{Inspector: w.inspect, Weight: func(guard.Key) int { return weight }})
			w.serve(cfg, asynqmw.Exclusive(w.locks, byPayload, parkAtOnce)(new(gauge).handler(nothing)))
			lease := w.hold("test:7")
			tasks := []*asynq.TaskInfo{w.parked(w.enqueue("charge", "7")), w.parked(w.enqueue("charge", "7"))}
			_ = lease.Release(context.Background())
			if took := w.all(tasks); took > soon {
				w.Errorf("done after %v", took)
			}
			var problems []string
			for _, m := range locktest.EventsOf[event.Misconfigured](w.heard) {
				if strings.Contains(m.Problem, "Weight") {
					problems = append(problems, m.Problem)
				}
			}
			got := strings.Join(problems, "; ")
			if full := fmt.Sprintf(`asynqmw: Parking.Weight returned %d for a key of class "test", must be between`, weight); want == "" && got != "" || want != "" && (!strings.HasPrefix(got, full) || !strings.HasSuffix(got, want)) {
				w.Errorf("reported %q, want %q once", got, want)
			}
		})
	}
}
