package main

import (
	"context"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

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
