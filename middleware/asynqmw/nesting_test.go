package asynqmw_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// one makes the key account:42 of each task.
func one(context.Context, *asynq.Task) (guard.Key, error) {
	return guard.Key{Class: "account", ID: "42"}, nil
}

// modes are both modes of Once.
var modes = map[string]guard.Mode{"at least once": guard.AtLeastOnce, "at most once": guard.AtMostOnce}

// configs are a server with and without parking.
var configs = map[string]func(*world) asynq.Config{
	"parking":         func(w *world) asynq.Config { return w.parking(8) },
	"without parking": func(*world) asynq.Config { return asynqmw.Configure(quick()) },
}

// perConfig runs story for each of configs, in a bubble.
func perConfig(t *testing.T, story func(w *world, cfg asynq.Config)) {
	t.Helper()
	for name, config := range configs {
		t.Run(name, func(t *testing.T) { inBubble(t, func(w *world) { story(w, config(w)) }) })
	}
}

// A run of payment 7 hangs and keeps its once key. 20 other payments of the account go on, beside
// four more tasks of payment 7, which use up no retry and run when the key is free.
// Shows: N5, A13
func TestHungPaymentLeavesTheAccount(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			perConfig(t, func(w *world, cfg asynq.Config) {
				var g gauge
				hung := w.holdOnce("charge/test:7")
				account := asynqmw.Exclusive(w.locks, one, asynqmw.ExclusiveOptions{})
				payment := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Mode: mode})
				w.serve(cfg, account(payment(g.handler(func(ctx context.Context, _ int, t *asynq.Task) error {
					stubborn(10 * time.Millisecond)
					return asynqmw.SetResult(ctx, t.Payload())
				}))))
				var repeats, others []*asynq.TaskInfo
				for range 4 {
					repeats = append(repeats, w.enqueue("charge", "7"))
				}
				began := time.Now()
				for i := range 20 {
					others = append(others, w.enqueue("charge", fmt.Sprint(100+i)))
				}
				if w.all(others); time.Since(began) > 10*time.Second {
					w.Errorf("20 payments of 10 ms took %v", time.Since(began))
				}
				w.state(asynq.TaskStateRetry, repeats...)
				_ = hung.Release(context.Background())
				w.all(repeats)
				for _, task := range repeats {
					if info := w.ends(task, asynq.TaskStateCompleted); string(info.Result) != "7" {
						w.Errorf("the result of a repeat is %q", info.Result)
					}
				}
				if runs, most := g.counts(); runs != 21 || most != 1 {
					w.Errorf("%d runs, %d at once, want 21 one at a time", runs, most)
				}
			})
		})
	}
}

// A task is parked on the once key inside of Exclusive. It has given the account back, keeps its
// place when it comes back to a busy key, and is woken when the key is free. If the account is busy
// then, it is parked on the account.
// Shows: A13
func TestParkedInside(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var g gauge
		hung := w.holdOnce("charge/test:7")
		account := asynqmw.Exclusive(w.locks, one, asynqmw.ExclusiveOptions{Terms: parkAtOnce.Terms})
		payment := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Terms: lockcore.Terms{Lease: 15 * time.Second}})
		w.serve(w.parking(3), account(payment(g.handler(nothing))))
		var tasks []*asynq.TaskInfo
		for range 3 {
			tasks = append(tasks, w.parked(w.enqueue("charge", "7")))
		}
		_ = w.hold("account:42").Release(context.Background()) // it is free
		if err := w.inspect.RunTask("default", tasks[0].ID); err != nil {
			w.Fatal(err)
		}
		if !w.eventually(func() bool {
			for _, e := range locktest.EventsOf[event.Parked](w.heard) {
				if e.Again && e.Before == 0 && e.Kind == event.KindOnce && e.Key == "charge/test:7" {
					return true
				}
			}
			return false
		}) {
			w.Error("the first task has lost its place")
		}
		busy := w.hold("account:42")
		_ = hung.Release(context.Background()) // wakes the first task
		w.until(tasks[0], func(i *asynq.TaskInfo) bool {
			return i.State == asynq.TaskStateRetry && strings.HasPrefix(i.LastErr, `asynqmw: parked on key "account:42"`)
		})
		_ = busy.Release(context.Background())
		if took := w.all(tasks); w.late(took, soon) {
			w.Errorf("done after %v", took)
		}
		if runs, most := g.counts(); runs != 1 || most != 1 {
			w.Errorf("%d runs, %d at once", runs, most)
		}
	})
}

// On the last attempt a Once inside of Exclusive waits for a lease at most. Then the account is
// free for its other tasks, and the task is archived with an error that names the holder. An
// explicit Wait that is longer is kept.
// Shows: A2
func TestLastAttemptInside(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]time.Duration{
		0: 2 * time.Second, lockcore.NoWait: 2 * time.Second, time.Second: 2 * time.Second, 4 * time.Second: 4 * time.Second, lockcore.Forever: lockcore.Forever,
	} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			perConfig(t, func(w *world, cfg asynq.Config) {
				w.holdOnce("charge/test:7")
				ended := make(chan bool, 1)
				account := asynqmw.Exclusive(w.locks, one, asynqmw.ExclusiveOptions{})
				payment := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Terms: lockcore.Terms{Wait: wait, Lease: 2 * time.Second}})
				h := payment(new(gauge).handler(nothing))
				w.serve(cfg, account(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
					deadline, _ := ctx.Deadline()
					start, most := time.Now(), min(want, time.Until(deadline)-time.Second)
					defer func() { ended <- true }()
					err := h.ProcessTask(ctx, t)
					if took := time.Since(start); (took - most).Abs() > 100*time.Millisecond {
						w.Errorf("the account was held for %v, want %v", took, most)
					}
					return err
				})))
				info := w.ends(w.enqueue("charge", "7", asynq.MaxRetry(0), asynq.Timeout(8*time.Second)), asynq.TaskStateArchived)
				if !strings.HasPrefix(info.LastErr, `asynqmw: last attempt lost to a conflict: lockcore: "charge/test:7" is busy`) || !strings.Contains(info.LastErr, "the-holder") {
					w.Errorf("last error %q", info.LastErr)
				}
				if n := len(locktest.EventsOf[event.ConflictLost](w.heard)); n != 1 {
					w.Errorf("%d ConflictLost, want 1", n)
				}
				<-ended
			})
		})
	}
}

// Each policy of a Once inside of Exclusive has the same result as without Exclusive, see
// TestPolicies.
// Shows: A13
func TestPoliciesInside(t *testing.T) {
	for policy, want := range map[asynqmw.ConflictPolicy]func(error) bool{
		asynqmw.RetryLater: func(err error) bool { _, busy := errors.AsType[*lockcore.BusyError](err); return busy },
		asynqmw.Skip:       func(err error) bool { return err == nil },
		asynqmw.Drop:       func(err error) bool { return errors.Is(err, asynq.RevokeTask) },
		asynqmw.Fail:       func(err error) bool { _, busy := errors.AsType[*lockcore.BusyError](err); return busy },
	} {
		inBubble(t, func(w *world) {
			w.holdOnce("charge/test:7")
			account := asynqmw.Exclusive(w.locks, one, asynqmw.ExclusiveOptions{})
			payment := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Busy: policy})
			inside := account(payment(new(gauge).handler(nothing))).ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7")))
			alone := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Busy: policy, Terms: noWait})(new(gauge).handler(nothing)).
				ProcessTask(w.Context(), asynq.NewTask("charge", []byte("7")))
			isFailure := asynqmw.Configure(quick()).IsFailure
			if !want(inside) || isFailure(inside) != isFailure(alone) || isFailure(inside) != (policy == asynqmw.Fail) {
				w.Errorf("%v: %v, failure %v; without Exclusive %v, failure %v", policy, inside, isFailure(inside), alone, isFailure(alone))
			}
		})
	}
}

// A program with the old order, Once outside of Exclusive, and one with the new order run side by
// side, as in a rolling deploy. The locks are inverted, but a Once inside of Exclusive does not
// wait. So there is no deadlock: each task ends, no retry is used up, each payment is charged once,
// and one charge of the account runs at a time.
// Shows: A13
func TestOldAndNewOrder(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, func(w *world) {
				for label, config := range configs {
					if !w.virtual && label != "parking" {
						continue // real time
					}
					var g gauge
					var mu sync.Mutex
					charged := map[string]int{}
					charge := g.handler(func(_ context.Context, _ int, t *asynq.Task) error {
						stubborn(20 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						charged[string(t.Payload())]++
						return nil
					})
					account := asynqmw.Exclusive(w.locks, one, asynqmw.ExclusiveOptions{})
					payment := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Mode: mode})
					servers := []*asynq.Server{w.serve(config(w), payment(account(charge))), w.serve(config(w), account(payment(charge)))}
					var tasks []*asynq.TaskInfo
					for i := range 60 { // three tasks of each payment
						tasks = append(tasks, w.enqueue("charge", fmt.Sprint(label, i%20), asynq.MaxRetry(3)))
					}
					for _, task := range tasks {
						w.noRetry(w.ends(task, asynq.TaskStateCompleted))
					}
					if runs, most := g.counts(); runs != 20 || most != 1 || len(charged) != 20 {
						w.Errorf("%s: %d runs of %d payments, %d at once; want 20 of 20, one at a time", label, runs, len(charged), most)
					}
					for _, srv := range servers {
						srv.Shutdown()
					}
				}
			})
		})
	}
}

// A task with a ticket for its account adopts that hold in Exclusive, and runs under a Once inside.
// If the payment is busy, the task gives the account back and the ticket is used up. Then it
// acquires the account like any other task.
func TestTicketOutsideOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		var g gauge
		account := asynqmw.Exclusive(w.locks, one, asynqmw.ExclusiveOptions{Adopt: true})
		payment := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Mode: guard.AtMostOnce})
		w.serve(asynqmw.Configure(quick()), account(payment(g.handler(nothing))))
		busy := w.holdOnce("charge/test:8")
		for _, id := range []string{"7", "8"} {
			ticket, err := w.hold("account:42").Ticket(w.Context(), time.Hour)
			if err != nil {
				w.Fatal(err)
			}
			task := w.enqueueTicket(w.Context(), "charge", id, ticket)
			if id == "8" {
				w.state(asynq.TaskStateRetry, task)
				_ = w.hold("account:42").Release(w.Context()) // it is free
				_ = busy.Release(w.Context())
			}
			w.noRetry(w.ends(task, asynq.TaskStateCompleted))
		}
		if runs, most := g.counts(); runs != 2 || most != 1 {
			w.Errorf("%d runs, %d at once", runs, most)
		}
	})
}
