package asynqmw

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// HeaderTicket is the name of the header for a ticket of guard.Ticket, see
// asynq.NewTaskWithHeaders. With a ticket a handler under Exclusive or Once transfers its hold to a
// task that it enqueues. That task, under a middleware with Adopt, begins under the same hold of
// the key, with a greater fencing token. No other task or process gets the key in between.
//
//   - asynq may deliver a task twice. Then one delivery adopts the hold, and the other acquires the
//     key like any other task. The same applies to a retry, because the first run has used the
//     ticket.
//   - If the task cannot be enqueued, adopt the ticket in the handler and release the lease.
//     Otherwise the key is held until the end of the ticket.
//   - The ticket is not encrypted. All programs with access to the Redis of asynq can read it, and
//     so can users of every tool that shows headers of tasks. A reader that can also send commands
//     to the Redis of the locks can take the hold.
const HeaderTicket = "holdfast-ticket"

// adopting returns a ctx in which the guard of key adopts the hold of the task's ticket, if there
// is one. A text that is not a ticket, and a ticket for another key, are mistakes of the producer.
// The task then does not run: asynq retries it, and archives it after the last retry.
func (d *decorator) adopting(ctx context.Context, t *asynq.Task, kind event.Kind, key string) (context.Context, error) {
	if !d.adopt {
		return ctx, nil
	}
	ticket := t.Headers()[HeaderTicket]
	if ticket == "" {
		return ctx, nil
	}
	of, name, err := d.locks.TicketKey(ticket)
	switch {
	case err != nil:
		return ctx, guard.NoEffect(errtext.Prefix("asynqmw: header "+HeaderTicket, err))
	case of != kind || name != key:
		return ctx, guard.NoEffect(fmt.Errorf("%w: it is for the %s key %q, and the task has the %s key %q", lockcore.ErrTicket, of, name, kind, key))
	}
	return guard.WithTicket(ctx, ticket), nil
}
