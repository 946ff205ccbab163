package asynqmw_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// enqueueTicket enqueues a task with a ticket.
func (w *world) enqueueTicket(ctx context.Context, kind, payload, ticket string) *asynq.TaskInfo {
	w.Helper()
	t := asynq.NewTaskWithHeaders(kind, []byte(payload), map[string]string{asynqmw.HeaderTicket: ticket})
	info, err := w.client.EnqueueContext(ctx, t, asynq.MaxRetry(3), asynq.Retention(time.Hour))
	if err != nil {
		w.Error(err)
	}
	return info
}

// A task transfers its hold to the next task, which runs before a task that waits. The ticket
// works for one of two deliveries. The retry of the adopter acquires the key like any other task.
// Shows: T2
func TestTicketExclusive(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		var mu sync.Mutex
		var order []string
		var tokens []int64
		var tasks []*asynq.TaskInfo
		next := make(chan struct{})
		alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Adopt: true, Terms: lockcore.Terms{Wait: time.Minute}})
		w.serve(asynqmw.Configure(quick()), alone(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			mu.Lock()
			defer mu.Unlock()
			token, _ := guard.Token(ctx, "test:7")
			order, tokens = append(order, t.Type()), append(tokens, token)
			switch {
			case t.Type() == "first":
				tasks = append(tasks, w.enqueue("waiter", "7"))
				stubborn(100 * time.Millisecond) // the waiter waits
				ticket, err := guard.Ticket(ctx, "test:7", time.Hour)
				if err != nil {
					w.Error(err)
				}
				for range 2 {
					tasks = append(tasks, w.enqueueTicket(guard.Detach(ctx), "adopter", "7", ticket))
				}
				close(next)
			case len(order) == 2: // the adopter
				return errors.New("the first run of the adopter fails")
			}
			return nil
		})))
		first := w.enqueue("first", "7")
		<-next
		for _, task := range append(tasks, first) {
			w.ends(task, asynq.TaskStateCompleted)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(order) != 5 || order[0] != "first" || order[1] != "adopter" || !slices.Contains(order, "waiter") {
			w.Errorf("the order is %v", order)
		}
		if !slices.IsSorted(tokens) || len(slices.Compact(slices.Clone(tokens))) != len(tokens) {
			w.Errorf("the tokens are %v", tokens)
		}
	})
}

// A task transfers a once key. The run continues in the next task, and the result of that
// task is recorded.
// Shows: T5
func TestTicketOnce(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		key := asynqmw.OnceKey("charge", guard.Key{Class: "test", ID: "7"})
		tasks := make(chan *asynq.TaskInfo, 1)
		once := asynqmw.Once(w.locks, byPayload, asynqmw.OnceOptions{Adopt: true, Mode: guard.AtMostOnce})
		w.serve(asynqmw.Configure(quick()), once(asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
			if t.Headers()[asynqmw.HeaderTicket] != "" {
				return asynqmw.SetResult(ctx, []byte("of the adopter"))
			}
			ticket, err := guard.Ticket(ctx, key, time.Hour)
			if err != nil {
				w.Error(err)
			}
			tasks <- w.enqueueTicket(guard.Detach(ctx), "charge", "7", ticket)
			return asynqmw.SetResult(guard.Detach(ctx), []byte("of the giver"))
		})))
		w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted)
		w.ends(<-tasks, asynq.TaskStateCompleted)
		if info := w.ends(w.enqueue("charge", "7"), asynq.TaskStateCompleted); string(info.Result) != "of the adopter" {
			w.Errorf("the recorded result is %q", info.Result)
		}
	})
}

// A task has an invalid ticket, or one for another key. It does not run, and its error does not
// contain the ticket.
func TestTicketBad(t *testing.T) {
	t.Parallel()
	both(t, func(w *world) {
		le := w.hold("test:8")
		other, err := le.Ticket(w.Context(), time.Hour)
		if err != nil {
			w.Fatal(err)
		}
		alone := asynqmw.Exclusive(w.locks, byPayload, asynqmw.ExclusiveOptions{Adopt: true})
		w.serve(asynqmw.Configure(quick()), alone(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			w.Error("the handler runs")
			return nil
		})))
		for _, ticket := range []string{"garbage", other} {
			info := w.ends(w.enqueueTicket(w.Context(), "charge", "7", ticket), asynq.TaskStateArchived)
			if !strings.Contains(info.LastErr, "bad ticket") || strings.Contains(info.LastErr, ticket) {
				w.Errorf("the error is %q", info.LastErr)
			}
		}
		lease, err := w.locks.Adopt(w.Context(), other, lockcore.Terms{})
		if err != nil {
			w.Fatal(err)
		}
		_ = lease.Release(w.Context())
	})
}
