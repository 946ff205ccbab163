package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// worker makes reports. Its first attempt fails, so that the retry finds a used ticket.
type worker struct {
	locks *lockcore.Locker
	begin chan struct{} // closed by the story
	done  chan struct{} // closed when a request is completed
	say   func(string)
}

// ProcessTask completes the request of the task.
func (w *worker) ProcessTask(ctx context.Context, t *asynq.Task) error {
	<-w.begin
	lease, err := w.lease(ctx, t.Headers()[asynqmw.HeaderTicket])
	if lease == nil {
		return err // nil if an earlier delivery has completed the request
	}
	// This release ends the hold if report panics or Complete fails. Otherwise the key would be
	// held until the process ends. After Complete or another release it has no effect.
	defer func() { _ = lease.Release(ctx) }()
	retry, _ := asynq.GetRetryCount(ctx)
	report, err := w.report(lease.Context(), retry)
	if err != nil { // the retry claims the key; a repetition of the request before the retry runs the handler again
		return err
	}
	defer close(w.done)
	header := http.Header{"Content-Type": {"text/plain"}}
	return httpmw.Complete(ctx, lease, http.StatusCreated, header, report)
}

// lease adopts the hold of the ticket. If the ticket is used or late, it claims the key: it gets no
// lease if the request is done.
func (w *worker) lease(ctx context.Context, ticket string) (*lockcore.Lease, error) {
	lease, err := w.locks.Adopt(ctx, ticket, lockcore.Terms{MaxHold: 10 * time.Minute})
	if !errors.Is(err, lockcore.ErrLost) {
		if err == nil {
			w.say("adopts the request")
		}
		return lease, err
	}
	_, key, err := w.locks.TicketKey(ticket)
	if err != nil {
		return nil, err
	}
	lease, _, err = w.locks.Claim(ctx, key, lockcore.Claim{})
	if lease != nil {
		w.say("claims the request, because the ticket is used")
	}
	return lease, err
}

func (w *worker) report(ctx context.Context, retry int) ([]byte, error) {
	if _, ok := guard.Current(ctx); !ok { // its Token protects the database, see package fence
		return nil, errors.New("no hold")
	}
	if retry == 0 {
		w.say("fails")
		return nil, errors.New("the database is not reachable")
	}
	w.say("makes the report")
	return []byte("the report of October"), nil
}
