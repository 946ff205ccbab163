package asynqtrace_test

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/tracing/asynqtrace"
)

// The program in the documentation of the package.
func Example() {
	spans := tracetest.NewInMemoryExporter() // in production: the OTLP exporter
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	ctx, request := tp.Tracer("shop").Start(context.Background(), "POST /orders")
	task := asynqtrace.NewTask(ctx, "charge", nil) // for client.EnqueueContext
	request.End()
	charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	traced := asynqtrace.Middleware(asynqtrace.Options{TracerProvider: tp}) // for mux.Use
	fmt.Println(traced(charge).ProcessTask(context.Background(), task))
	for _, span := range spans.GetSpans() {
		fmt.Println(span.Name, "has", len(span.Links), "links")
	}
	// Output:
	// <nil>
	// POST /orders has 0 links
	// process charge has 1 links
}
