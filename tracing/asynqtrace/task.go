package asynqtrace

import (
	"context"
	"maps"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// NewTask is asynq.NewTask for a task that stores the trace context of ctx in its headers. It is a
// constructor and does not wrap Enqueue, because the options of an asynq.Task cannot be read.
//
// Use asynq.NewTask for a task that is enqueued repeatedly, for example by a scheduler. With
// NewTask all its deliveries would link to the one span in which it was made.
func NewTask(ctx context.Context, typename string, payload []byte, opts ...asynq.Option) *asynq.Task {
	return NewTaskWithHeaders(ctx, typename, payload, nil, opts...)
}

// NewTaskWithHeaders is [NewTask] with your own headers. It does not change the map. If ctx has a
// span, its trace context replaces that in headers. Otherwise that in headers stays.
func NewTaskWithHeaders(ctx context.Context, typename string, payload []byte, headers map[string]string, opts ...asynq.Option) *asynq.Task {
	if trace.SpanContextFromContext(ctx).IsValid() {
		headers = maps.Clone(headers)
		if headers == nil {
			headers = map[string]string{}
		}
		for _, name := range w3c.Fields() {
			delete(headers, name) // a tracestate must not stay with another traceparent
		}
		w3c.Inject(ctx, propagation.MapCarrier(headers))
	}
	return asynq.NewTaskWithHeaders(typename, payload, headers, opts...)
}

var w3c propagation.TraceContext

// producer returns the span in which t was made, or an invalid one. It extracts into an empty
// context. In a context with a span, invalid headers would leave that span in place, and the
// delivery would link to itself.
func producer(t *asynq.Task) trace.SpanContext {
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier(t.Headers())))
}
