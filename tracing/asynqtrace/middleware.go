package asynqtrace

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/version"
	"github.com/holdfast-go/holdfast/lockcore"
)

const scope = "github.com/holdfast-go/holdfast/tracing/asynqtrace"

// Options are the options of [Middleware]. The zero value is ready to use.
type Options struct {
	// TracerProvider makes the spans. Default: otel.GetTracerProvider(), also if it is set later.
	TracerProvider trace.TracerProvider
}

// Middleware returns a middleware that makes the span in the documentation of this package for each
// delivery of a task. It returns the result of the handler unchanged. A panic continues.
func Middleware(o Options) asynq.MiddlewareFunc {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	tracer := o.TracerProvider.Tracer(scope, trace.WithInstrumentationVersion(version.String()), trace.WithSchemaURL(semconv.SchemaURL))
	return func(next asynq.Handler) asynq.Handler {
		if next == nil {
			panic("asynqtrace: handler must not be nil")
		}
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error { return deliver(ctx, tracer, t, next) })
	}
}

func deliver(ctx context.Context, tracer trace.Tracer, t *asynq.Task, next asynq.Handler) (err error) {
	opts := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes(ctx, t)...)}
	if from := producer(t); from.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: from}))
	}
	ctx, span := tracer.Start(ctx, process+" "+t.Type(), opts...)
	class := errorPanic // unless ProcessTask returns
	defer func() {
		if class != "" {
			span.SetAttributes(semconv.ErrorTypeKey.String(class))
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}()
	err = next.ProcessTask(ctx, t)
	class = ""
	if isFailure(ctx, err) {
		class = errorType(err)
	}
	return err
}

// attributes returns the attributes of a delivery. Without an asynq server, as in a test, the
// values that only a server has are missing.
func attributes(ctx context.Context, t *asynq.Task) []attribute.KeyValue {
	as := []attribute.KeyValue{
		system, operationName, operationType, attribute.String(attrTaskType, t.Type()),
	}
	if queue, ok := asynq.GetQueueName(ctx); ok {
		as = append(as, semconv.MessagingDestinationName(queue))
	}
	if id, ok := asynq.GetTaskID(ctx); ok {
		as = append(as, semconv.MessagingMessageID(id))
	}
	if n, ok := asynq.GetRetryCount(ctx); ok {
		as = append(as, attribute.Int(attrRetried, n))
	}
	return as
}

// isFailure reports whether err counts as a failure of the task. The errors of the guards of
// asynqmw have a method IsFailure. A busy key of a guard inside the handler counts only on the last
// attempt, after which asynq archives the task.
func isFailure(ctx context.Context, err error) bool {
	var guard interface{ IsFailure() bool }
	switch {
	case err == nil, errors.Is(err, asynq.RevokeTask):
		return false
	case errors.Is(err, asynq.SkipRetry): // asynq archives the task, whatever else err wraps
		return true
	case errors.As(err, &guard):
		return guard.IsFailure()
	case errors.Is(err, lockcore.ErrBusy):
		retried, ok := asynq.GetRetryCount(ctx)
		limit, _ := asynq.GetMaxRetry(ctx)
		return ok && retried >= limit
	}
	return true
}

// nameless are error types whose names have no information. The conventions use _OTHER for them.
var nameless = map[string]bool{
	"*errors.errorString": true, "*errors.joinError": true, "*fmt.wrapErrors": true, "*fmt.wrapError": true, "*errtext.joined": true,
}

// errorType returns the value of error.type for err. It is the result of its method ErrorType,
// canceled, timeout, the Go type at the end of its chain, or _OTHER. It is never the text of err.
func errorType(err error) string {
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) && typed.ErrorType() != "" {
		return typed.ErrorType()
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	if name := semconv.ErrorType(err).Value.AsString(); !nameless[name] {
		return name
	}
	return semconv.ErrorTypeOther.Value.AsString()
}
