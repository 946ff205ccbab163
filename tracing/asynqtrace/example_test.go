package asynqtrace_test

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/tracing/asynqtrace"
)

// A task has your own headers and those of the trace.
func ExampleNewTaskWithHeaders() {
	ctx, request := sdktrace.NewTracerProvider().Tracer("shop").Start(context.Background(), "POST /orders")
	defer request.End()
	task := asynqtrace.NewTaskWithHeaders(ctx, "charge", nil, map[string]string{"tenant": "acme"})
	fmt.Println(task.Headers()["tenant"], task.Headers()["traceparent"] != "")
	// Output: acme true
}

// The span of a delivery links to the span in which the task was made.
func ExampleMiddleware() {
	spans := tracetest.NewInMemoryExporter() // in production: the OTLP exporter
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))

	// The producer, in one process:
	ctx, request := tp.Tracer("shop").Start(context.Background(), "POST /orders")
	task := asynqtrace.NewTask(ctx, "charge", []byte(`{"account_id": 42}`))
	request.End()

	// The worker, in another:
	traced := asynqtrace.Middleware(asynqtrace.Options{TracerProvider: tp})
	charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	_ = traced(charge).ProcessTask(context.Background(), task)

	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name)
		for _, link := range span.Links {
			fmt.Println("  links to the request:", link.SpanContext.SpanID() == request.SpanContext().SpanID())
		}
	}
	// Output:
	// POST /orders
	// process charge
	//   links to the request: true
}
