// Command transfer is an API that responds 202 and lets an asynq task do the work. The hold of the
// Idempotency-Key passes from the HTTP handler to the task with a ticket. So a repetition of the
// request gets the 202 until the task has completed it, and then the result.
//
//	go run ./examples/transfer                        on a Redis inside the process
//	go run ./examples/transfer -redis localhost:6379  on your Redis; it removes the keys that it makes
//
// It sends the requests itself (story.go), checks the responses, and exits with 1 if one is not as
// expected.
package main

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func main() { program.Main() }

var program = stage.Program{Name: "transfer", Play: story}

// adoptWithin is how long the task may wait in the queue. After that the key is abandoned, and the
// next repetition of the request starts a new run.
const adoptWithin = 10 * time.Minute

// api accepts orders for reports. A task makes them.
type api struct {
	client *asynq.Client
	queue  string
	locks  *lockcore.Locker
}

func (a *api) handler() http.Handler {
	tenant := func(*http.Request) (string, error) { return "tenant", nil } // replaces a check of credentials
	mux := http.NewServeMux()
	mux.Handle("POST /reports", httpmw.Idempotent(a.locks, tenant, httpmw.IdempotentOptions{})(http.HandlerFunc(a.order)))
	return mux
}

func (a *api) order(w http.ResponseWriter, r *http.Request) {
	ticket, err := guard.Ticket(r.Context(), httpmw.Key(r.Context()), adoptWithin)
	if err != nil { // the hold continues, and this response releases the key
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	ctx := guard.Detach(r.Context()) // Ticket has ended the ctx of the request
	t := asynq.NewTaskWithHeaders("report", nil, map[string]string{asynqmw.HeaderTicket: ticket})
	if _, err := a.client.EnqueueContext(ctx, t, asynq.Queue(a.queue)); err != nil {
		a.takeBack(ctx, ticket)
		http.Error(w, "try again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = w.Write([]byte("the report will be made"))
}

// takeBack releases the key at once. Otherwise the key would be held for adoptWithin.
func (a *api) takeBack(ctx context.Context, ticket string) {
	if lease, err := a.locks.Adopt(ctx, ticket, lockcore.Terms{}); err == nil {
		_ = lease.Release(ctx)
	}
}

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
