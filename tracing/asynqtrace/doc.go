// Package asynqtrace carries a trace from the producer of an asynq task to the worker.
//
// In this program the span of the delivery links to the request's span:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"github.com/hibiken/asynq"
//		sdktrace "go.opentelemetry.io/otel/sdk/trace"
//		"go.opentelemetry.io/otel/sdk/trace/tracetest"
//
//		"github.com/holdfast-go/holdfast/tracing/asynqtrace"
//	)
//
//	func main() {
//		spans := tracetest.NewInMemoryExporter() // in production: the OTLP exporter
//		tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
//		ctx, request := tp.Tracer("shop").Start(context.Background(), "POST /orders")
//		task := asynqtrace.NewTask(ctx, "charge", nil) // for client.EnqueueContext
//		request.End()
//		charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
//		traced := asynqtrace.Middleware(asynqtrace.Options{TracerProvider: tp}) // for mux.Use
//		fmt.Println(traced(charge).ProcessTask(context.Background(), task))
//		for _, span := range spans.GetSpans() {
//			fmt.Println(span.Name, "has", len(span.Links), "links")
//		}
//	}
//
// A task stores the trace context of its producer in its headers. Put the middleware outside of the
// guards of package asynqmw:
//
//	mux.Use(asynqtrace.Middleware(asynqtrace.Options{}))
//	mux.Handle("charge", account(payment(charge)))
//
// Then the spans of the guards, and the time that a task waits for its key, are below the span of
// the delivery.
//
// # Span
//
// Each delivery has one span of kind consumer with the name "process TYPE". It lasts from the call
// of the handler to its return, even if asynq has given up the task meanwhile. The conventions for
// messaging would name it after the queue. But asynq chooses the handler by the type of the task,
// and most programs have one queue.
//
//	messaging.system            string  asynq
//	messaging.operation.name    string  process
//	messaging.operation.type    string  process
//	messaging.destination.name  string  the queue
//	messaging.message.id        string  the task ID
//	asynq.task.type             string  the type of the task
//	asynq.task.retried          int     failed attempts before this one
//	error.type                  string  only if the status is Error: a class, panic, a Go type, or _OTHER
//
// The span links to the producer's span and is not its child. A task may run days later and several
// times, and would extend the trace of its producer each time. So the span begins a new trace,
// which is sampled separately, unless the ctx of the server has a span. The messaging conventions
// of OpenTelemetry are not stable. The names are those of version 1.43.
//
// The status is Error if the handler panics, or returns an error that asynq treats as a failure of
// the task. The status is not set for a busy key that is retried later, or for asynq.RevokeTask,
// because these are outcomes and no errors.
//
// # Headers
//
// The headers are traceparent and tracestate of W3C Trace Context, without baggage. A task without
// these headers, or with an invalid one, has a span without a link, and runs like any other task.
//
// # Guarantees
//
// No span contains the text of an error, the payload or the headers.
package asynqtrace
