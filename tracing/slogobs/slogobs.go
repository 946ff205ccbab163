package slogobs

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/eventlog"
	_ "github.com/holdfast-go/holdfast/lockcore" // eventlog needs it to classify errors
)

// Options are the options of [New]. The zero value is ready to use.
type Options struct {
	// ExposeRawKeys writes the key, as key, instead of key_digest, and does not replace keys in the
	// texts of errors. Default: only the digest.
	ExposeRawKeys bool
}

// New returns an Observer for lockcore.Options that writes the records in the documentation of
// this package to l. If l is nil, it writes to the slog.Default() of the time of the call. One
// Observer can serve any number of Lockers.
func New(l *slog.Logger, o Options) event.Observer {
	if l == nil {
		l = slog.Default()
	}
	return &observer{log: eventlog.New(eventlog.Options{Logger: l, RawKeys: o.ExposeRawKeys})}
}

type observer struct{ log *eventlog.Log }

// callKey contains the observer, so two Observers on one Locker (event.Join) each find their
// own call.
type callKey struct{ *observer }

// Start stores the call in ctx for the events.
func (o *observer) Start(ctx context.Context, a event.Acquisition) context.Context {
	return context.WithValue(ctx, callKey{o}, &a)
}

// Traceparent returns "", because a logger has no trace context.
func (o *observer) Traceparent(context.Context) string { return "" }

// Event writes at most one record.
func (o *observer) Event(ctx context.Context, e event.Event) {
	a, _ := ctx.Value(callKey{o}).(*event.Acquisition)
	o.log.Event(ctx, a, e)
}
