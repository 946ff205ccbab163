package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// runs are the runs of a handler under Latest, by the IDs of their tasks.
type runs struct {
	w    *world
	mu   sync.Mutex
	list []string
	do   func(ctx context.Context, id string) error // nil: nothing
}

func (r *runs) ProcessTask(ctx context.Context, _ *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	r.mu.Lock()
	r.list = append(r.list, id)
	r.mu.Unlock()
	if r.do != nil {
		return r.do(ctx, id)
	}
	return nil
}

// are checks which tasks have run, in order.
func (r *runs) are(want ...*asynq.TaskInfo) {
	r.w.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var ids []string
	for _, task := range want {
		ids = append(ids, task.ID)
	}
	if !slices.Equal(r.list, ids) {
		r.w.Errorf("tasks %v ran, want %v", r.list, ids)
	}
}

// replaced checks how many tasks ended without a run.
func (w *world) replaced(want int) {
	w.Helper()
	all := locktest.EventsOf[event.Replaced](w.heard)
	if len(all) != want {
		w.Errorf("%d tasks were replaced, want %d", len(all), want)
	}
	for _, e := range all {
		if e.Name != "test" || e.Key != "test:7" {
			w.Errorf("%+v", e)
		}
	}
}

// note notes a trigger of the key of the tests, as its delivery does.
func (w *world) note(id string, fresh bool) access.Note {
	w.Helper()
	note, err := access.Of(w.locks).NoteTrigger(w.Context(), "test:7", "/default/"+id, fresh)
	if err != nil {
		w.Fatal(err)
	}
	return note
}

// open returns how many triggers of the key have not ended: a new one reports them.
func (w *world) open() int {
	w.Helper()
	note := w.note("of the test", true)
	if err := access.Of(w.locks).EndTrigger(w.Context(), "test:7", "/default/of the test", note.Number); err != nil {
		w.Fatal(err)
	}
	return note.Older
}

// One task runs, the newest one waits, and the older ones complete without a run. Each of them ends
// in the state of a success.
// Shows: A14, A15
func TestLatest(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(w *world) asynq.Config{
		"parking": func(w *world) asynq.Config { return w.parking(4) },
		"retry":   func(*world) asynq.Config { c := quick(); c.Concurrency = 4; return asynqmw.Configure(c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				begun, finish := make(chan string, 10), make(chan struct{})
				r := &runs{w: w, do: func(_ context.Context, id string) error {
					begun <- id
					<-finish
					return nil
				}}
				w.serve(configure(w), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})(r))
				tasks := []*asynq.TaskInfo{w.enqueue("index", "7", asynq.MaxRetry(1))}
				<-begun
				for range 5 {
					task := w.enqueue("index", "7", asynq.MaxRetry(1))
					tasks = append(tasks, task)
					w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateRetry })
					if len(tasks) > 2 {
						w.ends(tasks[len(tasks)-2], asynq.TaskStateCompleted) // it was woken, or came back
					}
				}
				close(finish)
				for _, task := range tasks {
					w.noRetry(w.ends(task, asynq.TaskStateCompleted))
				}
				r.are(tasks[0], tasks[5])
				w.replaced(4)
				if n := w.open(); n != 0 {
					w.Errorf("%d triggers have not ended", n)
				}
			})
		})
	}
}

// A newer trigger wakes the older parked task, which completes long before it comes back by itself.
// Shows: A15
func TestLatestWakesOlder(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		lease := w.hold("test:7")
		r := &runs{w: w}
		w.serve(w.parking(3), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})(r))
		older := w.parked(w.enqueue("index", "7"))
		began := time.Now()
		newer := w.parked(w.enqueue("index", "7"))
		w.ends(older, asynq.TaskStateCompleted)
		if took := time.Since(began); took > 5*time.Second {
			w.Errorf("the older task completed after %v", took)
		}
		w.state(asynq.TaskStateRetry, newer) // it was not woken
		_ = lease.Release(context.Background())
		w.ends(newer, asynq.TaskStateCompleted)
		r.are(newer)
		if n := w.rdb.ZCard(w.Context(), "holdfast:2:x:{test:7}:p").Val(); n != 0 {
			w.Errorf("%d entries are parked", n)
		}
	})
}

// An older task whose retry comes after the success of a newer one does not run.
// Shows: A15
func TestLatestOldRetry(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		cfg := quick()
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 10 * time.Second }
		r := &runs{w: w}
		var first string
		r.do = func(_ context.Context, id string) error {
			if first == "" || id == first {
				first = id
				return errBoom
			}
			return nil
		}
		w.serve(asynqmw.Configure(cfg), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		older := w.enqueue("index", "7", asynq.MaxRetry(3))
		w.until(older, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateRetry })
		newer := w.enqueue("index", "7")
		w.ends(newer, asynq.TaskStateCompleted)
		if info := w.ends(older, asynq.TaskStateCompleted); info.Retried != 1 {
			w.Errorf("retried %d, want 1", info.Retried)
		}
		r.are(older, newer)
		w.replaced(1)
	})
}

// The newest task fails, and is retried until it succeeds. A task that fails for the last time is
// archived.
// Shows: A14
func TestLatestFails(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		r := &runs{w: w}
		n := 0
		r.do = func(context.Context, string) error {
			if n++; n != 3 {
				return errBoom
			}
			return nil
		}
		w.serve(asynqmw.Configure(quick()), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		task := w.enqueue("index", "7", asynq.MaxRetry(3))
		w.ends(task, asynq.TaskStateCompleted)
		bad := w.enqueue("index", "7", asynq.MaxRetry(0))
		w.ends(bad, asynq.TaskStateArchived)
		r.are(task, task, task, bad)
		problems := locktest.EventsOf[event.Misconfigured](w.heard)
		if len(problems) != 1 || !strings.Contains(problems[0].Problem, `a task of type "index" has MaxRetry(0)`) {
			w.Errorf("%+v", problems)
		}
	})
}

// A task that waits in its worker completes if a newer one was delivered meanwhile, also on its last
// attempt.
// Shows: A15
func TestLatestWaits(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		lease := w.hold("test:7")
		r := &runs{w: w}
		o := asynqmw.LatestOptions{Terms: lockcore.Terms{Wait: time.Hour}}
		w.serve(asynqmw.Configure(quick()), asynqmw.Latest(w.locks, byPayload, o)(r))
		older := w.enqueue("index", "7", asynq.MaxRetry(0))
		w.waits()
		if !w.eventually(func() bool { return w.open() == 1 }) {
			w.Error("the older task is not noted")
		}
		newer := w.enqueue("index", "7")
		if !w.eventually(func() bool { return w.open() == 2 }) {
			w.Error("the newer task is not noted")
		}
		if note := w.note(older.ID, false); note.Newest || note.Number == 0 {
			w.Errorf("the older task is %+v", note)
		}
		_ = lease.Release(context.Background())
		w.ends(older, asynq.TaskStateCompleted)
		w.ends(newer, asynq.TaskStateCompleted)
		r.are(newer)
	})
}

// On its last attempt an older task whose wait is over completes. The newest one is archived.
// Shows: A2, A15
func TestLatestLastAttempt(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.hold("test:7")
		r := &runs{w: w}
		w.serve(asynqmw.Configure(quick()), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		older := w.enqueue("index", "7", asynq.MaxRetry(0), asynq.Timeout(10*time.Second))
		w.waits()
		newer := w.enqueue("index", "7", asynq.MaxRetry(0), asynq.Timeout(20*time.Second))
		w.ends(older, asynq.TaskStateCompleted)
		w.ends(newer, asynq.TaskStateArchived)
		r.are()
	})
}

// With Interrupt a newer task ends the run of an older one, which completes without a retry, and does
// not reach ErrorHandler. A run that ignores the end of its ctx and succeeds counts.
// Shows: A16
func TestLatestInterrupt(t *testing.T) {
	t.Parallel()
	for _, stubborn := range []bool{false, true} {
		t.Run(fmt.Sprint("stubborn ", stubborn), func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				begun := make(chan string, 10)
				var first string
				causes := make(chan error, 1)
				r := &runs{w: w, do: func(ctx context.Context, id string) error {
					begun <- id
					if first == "" {
						first = id
						<-ctx.Done()
						causes <- context.Cause(ctx)
						if stubborn {
							return nil
						}
						return ctx.Err()
					}
					return nil
				}}
				var c complaints
				cfg := quick()
				cfg.ErrorHandler = &c
				w.serve(asynqmw.Configure(cfg), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{Interrupt: true})(r))
				older := w.enqueue("index", "7", asynq.MaxRetry(0))
				<-begun
				newer := w.enqueue("index", "7", asynq.MaxRetry(1))
				if cause := <-causes; !errors.Is(cause, lockcore.ErrReplaced) {
					w.Errorf("the run ended by %v", cause)
				}
				w.noRetry(w.ends(older, asynq.TaskStateCompleted))
				w.noRetry(w.ends(newer, asynq.TaskStateCompleted))
				r.are(older, newer)
				if all := c.all(); len(all) > 0 {
					w.Errorf("ErrorHandler got %v", all)
				}
				if !stubborn {
					w.replaced(1)
				}
			})
		})
	}
}

// The hold of the newest task is ended, as an older one does whose revocation comes late. The task
// runs again at once.
// Shows: A14
func TestLatestInterruptedByMistake(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := &runs{w: w}
		n := 0
		r.do = func(ctx context.Context, _ string) error {
			if n++; n > 1 {
				return nil
			}
			time.Sleep(2 * time.Second) // now the process is subscribed
			h, _ := guard.Current(ctx)
			if err := access.Of(w.locks).Replace(context.WithoutCancel(ctx), "test:7", h.Token+1); err != nil {
				w.Error(err)
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		w.serve(asynqmw.Configure(quick()), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		task := w.enqueue("index", "7", asynq.MaxRetry(0))
		w.noRetry(w.ends(task, asynq.TaskStateCompleted))
		r.are(task, task)
		w.replaced(0)
	})
}

// Tasks that come within Delay are postponed, until no newer one has come for that time, but at most
// for MaxDelay. No retry is used up, and an operator sees why.
// Shows: A14, A15
func TestLatestDelay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := &runs{w: w}
		var began time.Time
		r.do = func(context.Context, string) error { began = time.Now(); return nil }
		o := asynqmw.LatestOptions{Delay: 10 * time.Second, MaxDelay: 25 * time.Second}
		w.serve(w.parking(4), asynqmw.Latest(w.locks, byPayload, o)(r))
		first := time.Now()
		var tasks []*asynq.TaskInfo
		for range 3 { // after 0, 4 and 8 s
			task := w.enqueue("index", "7", asynq.MaxRetry(1))
			tasks = append(tasks, task)
			info := w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateRetry })
			if !strings.Contains(info.LastErr, "asynqmw: postponed for ") {
				w.Errorf("the last error is %q", info.LastErr)
			}
			time.Sleep(4 * time.Second)
		}
		for _, task := range tasks {
			w.noRetry(w.ends(task, asynq.TaskStateCompleted))
		}
		if after := began.Sub(first); after < 18*time.Second || after > 20*time.Second {
			w.Errorf("the run began after %v, want 18 s", after)
		}
		first = time.Now()
		for range 10 { // until 36 s
			tasks = append(tasks, w.enqueue("index", "7", asynq.MaxRetry(1)))
			time.Sleep(4 * time.Second)
		}
		if after := began.Sub(first); after < 25*time.Second || after > 30*time.Second {
			w.Errorf("the run began after %v, want 25 s", after)
		}
		for _, task := range tasks {
			w.ends(task, asynq.TaskStateCompleted)
		}
		if last := tasks[len(tasks)-1].ID; r.list[len(r.list)-1] != last {
			w.Errorf("task %s ran last, want %s", r.list[len(r.list)-1], last)
		}
		none := w.enqueue("index", "7", asynq.MaxRetry(0)) // a last attempt is not postponed
		w.ends(none, asynq.TaskStateCompleted)
		if since := time.Since(began); since > 2*time.Second {
			w.Errorf("it ran %v ago", since)
		}
	})
}

// A worker's success is recorded, and asynq delivers its task again: it completes without a run. If
// asynq had given up on the delivery, its trigger has not ended, but is covered by the success.
// Shows: A15
func TestLatestDeliveredAgain(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := &runs{w: w, do: func(context.Context, string) error {
			stubborn(3 * time.Second) // beyond the deadline
			return nil
		}}
		cfg := quick()
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 5 * time.Second }
		w.serve(asynqmw.Configure(cfg), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		task := w.enqueue("index", "7", asynq.Timeout(2*time.Second), asynq.MaxRetry(3))
		w.ends(task, asynq.TaskStateCompleted)
		r.are(task)
		w.replaced(1)
	})
}

// A task uses the ID of one that has just ended: it is postponed for the rest of a minute, and runs.
// Shows: A14
func TestLatestSameID(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := &runs{w: w}
		w.serve(asynqmw.Configure(quick()), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		first := w.enqueue("index", "7", asynq.TaskID("same"), asynq.Retention(0))
		w.vanishes(first)
		ended := time.Now()
		second := w.enqueue("index", "7", asynq.TaskID("same"), asynq.MaxRetry(1))
		w.noRetry(w.ends(second, asynq.TaskStateCompleted))
		if took := time.Since(ended); took < 50*time.Second || took > 70*time.Second {
			w.Errorf("it ran after %v, want a minute", took)
		}
		r.are(first, second)
		third := w.enqueue("index", "7", asynq.TaskID("last attempt"), asynq.MaxRetry(0), asynq.Retention(0))
		w.vanishes(third)
		fourth := w.enqueue("index", "7", asynq.TaskID("last attempt"), asynq.MaxRetry(0))
		w.ends(fourth, asynq.TaskStateCompleted)
		r.are(first, second, third, fourth)
	})
}

// While Redis does not order the triggers, no task runs, and each of them fails.
// Shows: A15
func TestLatestUnavailable(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := &runs{w: w}
		if err := w.rdb.Set(w.Context(), "holdfast:2:x:{test:7}:t", "foreign", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		w.serve(asynqmw.Configure(quick()), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		task := w.ends(w.enqueue("index", "7", asynq.MaxRetry(1)), asynq.TaskStateArchived)
		if !strings.Contains(task.LastErr, "WRONGTYPE") {
			w.Errorf("the last error is %q", task.LastErr)
		}
		r.are()
	})
}

// A task with a Group is refused when it would be parked or postponed, and asynq archives it.
func TestGroupIsRefused(t *testing.T) {
	t.Parallel()
	for name, guarded := range map[string]func(*lockcore.Locker) asynq.MiddlewareFunc{
		"Exclusive": func(l *lockcore.Locker) asynq.MiddlewareFunc {
			return asynqmw.Exclusive(l, byPayload, asynqmw.ExclusiveOptions{})
		},
		"Latest": func(l *lockcore.Locker) asynq.MiddlewareFunc {
			return asynqmw.Latest(l, byPayload, asynqmw.LatestOptions{})
		},
		"Latest with Delay": func(l *lockcore.Locker) asynq.MiddlewareFunc {
			return asynqmw.Latest(l, byPayload, asynqmw.LatestOptions{Delay: time.Minute})
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *world) {
				w.hold("test:7")
				var g gauge
				w.serve(w.parking(3), guarded(w.locks)(g.handler(nothing)))
				task := w.enqueue("index", "7", asynq.Group("g"))
				if err := w.inspect.RunTask(task.Queue, task.ID); err != nil {
					t.Fatal(err)
				}
				info := w.ends(task, asynq.TaskStateArchived)
				if !strings.Contains(info.LastErr, `the task has the Group "g", must have none`) {
					w.Errorf("the last error is %q", info.LastErr)
				}
				if n := w.rdb.ZCard(w.Context(), "holdfast:2:x:{test:7}:p").Val(); n != 0 {
					w.Errorf("%d entries are parked", n)
				}
			})
		})
	}
}

// asynq moves a task with a Group from retry to its group.
func TestAsynqFact_retryOfAGroupGoesToTheGroup(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		w.serve(quick(), g.handler(func(context.Context, int, *asynq.Task) error { return errBoom }))
		task := w.enqueue("index", "7", asynq.Group("g"))
		if err := w.inspect.RunTask(task.Queue, task.ID); err != nil {
			w.Fatal(err)
		}
		w.until(task, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateAggregating })
	})
}

// asynq refuses a second task with a TaskID, or a Unique one, while the first one is active. So tasks
// of Latest need different IDs.
func TestAsynqFact_sameIDIsRefusedDuringARun(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		begun, finish := make(chan struct{}, 2), make(chan struct{})
		var g gauge
		w.serve(quick(), g.handler(func(context.Context, int, *asynq.Task) error { begun <- struct{}{}; <-finish; return nil }))
		w.enqueue("a", "7", asynq.TaskID("id"))
		w.enqueue("b", "7", asynq.Unique(time.Hour))
		<-begun
		<-begun
		if _, err := w.client.Enqueue(asynq.NewTask("a", nil), asynq.TaskID("id")); !errors.Is(err, asynq.ErrTaskIDConflict) {
			w.Errorf("%v", err)
		}
		if _, err := w.client.Enqueue(asynq.NewTask("b", []byte("7")), asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
			w.Errorf("%v", err)
		}
		close(finish)
	})
}

// A task without a server is another one in each call.
func TestLatestWithoutServer(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	n := 0
	h := asynqmw.Latest(locks, byPayload, asynqmw.LatestOptions{})(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { n++; return nil }))
	for range 2 {
		if err := h.ProcessTask(t.Context(), asynq.NewTask("index", []byte("7"))); err != nil {
			t.Error(err)
		}
	}
	if n != 2 {
		t.Errorf("%d runs", n)
	}
}

// Bad options are errors that name the field, the value and the bound.
func TestLatestOptions(t *testing.T) {
	for want, o := range map[string]asynqmw.LatestOptions{
		"LatestOptions.Delay is 1ms, must be 0 or between 1s and 24h0m0s":                   {Delay: time.Millisecond},
		"LatestOptions.Delay is 25h0m0s":                                                    {Delay: 25 * time.Hour},
		"LatestOptions.MaxDelay is 1m0s, must be 0 without Delay":                           {MaxDelay: time.Minute},
		"LatestOptions.MaxDelay is 5s, must be 0 or between 10s (Delay) and 24h0m0s":        {Delay: 10 * time.Second, MaxDelay: 5 * time.Second},
		"LatestOptions.MaxDelay is 24h0m0.000000001s, must be 0 or between 10s (Delay) and": {Delay: 10 * time.Second, MaxDelay: 24*time.Hour + 1},
		"Terms.Wait is -5ns": {Terms: lockcore.Terms{Wait: -5}},
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, want) || !strings.HasPrefix(text, "asynqmw: Latest: ") {
					t.Errorf("panic %q, want %q", text, want)
				}
			}()
			asynqmw.Latest(new(lockcore.Locker), byPayload, o)
		}()
	}
	if err := (asynqmw.LatestOptions{Delay: time.Second, MaxDelay: time.Second}).Validate(); err != nil {
		t.Error(err)
	}
}

// A worker is killed during the newest task. Older tasks complete meanwhile, and asynq delivers the
// killed one again, which runs.
// Shows: A14, A15
func TestLatestKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, net := bubble(t), faulty.New(t)
		w := newWorld(t, server.Client(t))
		dead := newWorld(t, server.Client(t, func(o *redis.Options) { o.Dialer = net.Dial(o.Dialer) }))
		begun, end := make(chan struct{}), make(chan struct{})
		srv := asynq.NewServerFromRedisClient(dead.rdb, asynqmw.Configure(quick()))
		if err := srv.Start(asynqmw.Latest(dead.locks, byPayload, asynqmw.LatestOptions{})(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			close(begun)
			<-end
			return nil
		}))); err != nil {
			t.Fatal(err)
		}
		killed := w.enqueue("index", "7")
		<-begun
		net.Silence() // as a kill: no lease is extended, and no task ends
		older := w.enqueue("index", "7", asynq.TaskID("older"), asynq.ProcessIn(time.Second))
		w.note("older", true)
		r := &runs{w: w}
		w.serve(w.parking(3), asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r))
		w.ends(older, asynq.TaskStateCompleted)
		if info := w.ends(killed, asynq.TaskStateCompleted); info.Retried != 1 {
			t.Errorf("retried %d, want 1", info.Retried)
		}
		r.are(older) // it is newer than the killed one, which has completed without a run
		w.replaced(1)

		last := w.enqueue("index", "7")
		w.ends(last, asynq.TaskStateCompleted)
		r.are(older, last)
		net.Heal()
		close(end)
		srv.Shutdown()
	})
}

// The worker of the newest task is killed. Asynq delivers it again after a minute or two, and it runs:
// the older task, whose retry came first, has completed without a run.
// Shows: A14
func TestLatestKilledNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, net := bubble(t), faulty.New(t)
		w := newWorld(t, server.Client(t))
		cfg := quick()
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 45 * time.Second }
		r, fail := &runs{w: w}, true
		r.do = func(context.Context, string) error {
			if fail {
				fail = false
				return errBoom
			}
			return nil
		}
		cfg.Queues = map[string]int{"alive": 1}
		h := asynqmw.Latest(w.locks, byPayload, asynqmw.LatestOptions{})(r)
		w.serve(asynqmw.Configure(cfg), h)
		older := w.enqueue("index", "7", asynq.Queue("alive"))
		w.until(older, func(i *asynq.TaskInfo) bool { return i.State == asynq.TaskStateRetry })

		dead := newWorld(t, server.Client(t, func(o *redis.Options) { o.Dialer = net.Dial(o.Dialer) }))
		begun, end := make(chan struct{}), make(chan struct{})
		srv := asynq.NewServerFromRedisClient(dead.rdb, asynqmw.Configure(quick()))
		if err := srv.Start(asynqmw.Latest(dead.locks, byPayload, asynqmw.LatestOptions{})(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			close(begun)
			<-end
			return nil
		}))); err != nil {
			t.Fatal(err)
		}
		newest := w.enqueue("index", "7")
		<-begun
		net.Silence()
		w.ends(older, asynq.TaskStateCompleted)
		r.are(older) // its first run
		w.serve(asynqmw.Configure(quick()), h)
		w.ends(newest, asynq.TaskStateCompleted)
		r.are(older, newest)
		net.Heal()
		close(end)
		srv.Shutdown()
	})
}
