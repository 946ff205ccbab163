package asynqtrace

import (
	"context"
	"maps"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// NewTask is asynq.NewTask for a task that takes the trace context of ctx along. It is a constructor, and not something
// around Enqueue, because asynq does not give the options of a task back.
//
// A task that is enqueued again and again, as by a scheduler, is better made with asynq.NewTask: all its deliveries would
// link to the one span that made it.
func NewTask(ctx context.Context, typename string, payload []byte, opts ...asynq.Option) *asynq.Task {
	return NewTaskWithHeaders(ctx, typename, payload, nil, opts...)
}

// NewTaskWithHeaders is [NewTask] with headers of your own. The map is not changed. If ctx has a span, its trace context
// replaces one among the headers; if not, that one is passed on.
func NewTaskWithHeaders(ctx context.Context, typename string, payload []byte, headers map[string]string, opts ...asynq.Option) *asynq.Task {
	if trace.SpanContextFromContext(ctx).IsValid() {
		headers = maps.Clone(headers)
		if headers == nil {
			headers = map[string]string{}
		}
		for _, name := range w3c.Fields() {
			delete(headers, name) // a tracestate must not stay behind beside another traceparent
		}
		w3c.Inject(ctx, propagation.MapCarrier(headers))
	}
	return asynq.NewTaskWithHeaders(typename, payload, headers, opts...)
}

var w3c propagation.TraceContext

// producer is the span that made t, or an invalid one. It is extracted into an empty context: into one with a span, bad
// headers would leave that span there, and the delivery would link to itself.
func producer(t *asynq.Task) trace.SpanContext {
	return trace.SpanContextFromContext(w3c.Extract(context.Background(), propagation.MapCarrier(t.Headers())))
}
