// Package asynqtrace carries a trace through asynq: a task takes the trace context of its producer along in its headers,
// and the span of each delivery links to it.
//
//	client.EnqueueContext(ctx, asynqtrace.NewTask(ctx, "charge", payload))
//
//	mux := asynq.NewServeMux()
//	mux.Use(asynqtrace.Middleware(asynqtrace.Options{}))
//	mux.Handle("charge", payment(account(charge)))
//
// The middleware stands outside of the guards of package asynqmw, so that their spans, and the time that a task stood in line, are below
// its own.
//
// # Span
//
// One span of kind consumer for each delivery, named "process TYPE", from the call of the handler to its return, also if
// asynq has given the task up meanwhile. The conventions for messaging would name it after the queue; asynq chooses the handler
// by the type of the task, and most programs have one queue.
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
// It links to the producer's span and is not its child: a task may run days later, and several times, and would stretch its
// producer's trace each time. So it begins a trace, which is sampled by itself, unless the ctx of the server has a span.
// The messaging conventions of OpenTelemetry are not stable; the names are those of version 1.43.
//
// The status is Error if the handler panics or returns an error that asynq counts against the task. It is not set for a busy key
// that is tried again later, nor for asynq.RevokeTask: those are outcomes. The text of an error is nowhere, nor are payload and
// headers.
//
// # Headers
//
// traceparent and tracestate, as W3C's Trace Context has them; no baggage. A task without them, or with one that is not
// valid, has a span without a link and runs like any other.
package asynqtrace
