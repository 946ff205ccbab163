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

// HeaderTicket is the name of the header for a ticket of guard.Ticket. Make a task with this header
// with asynq.NewTaskWithHeaders. See ExclusiveOptions.Adopt.
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
