// Package tracing makes OpenTelemetry spans and metrics of the calls of a [lockcore.Locker].
//
// This program prints the name of the span of a run:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		sdktrace "go.opentelemetry.io/otel/sdk/trace"
//		"go.opentelemetry.io/otel/sdk/trace/tracetest"
//
//		"github.com/holdfast-go/holdfast/guard"
//		"github.com/holdfast-go/holdfast/lockcore"
//		"github.com/holdfast-go/holdfast/tracing"
//	)
//
//	func main() {
//		ctx, spans := context.Background(), tracetest.NewInMemoryExporter() // in production: the OTLP exporter
//		provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
//		observer, err := tracing.New(tracing.Options{TracerProvider: provider})
//		if err != nil {
//			panic(err)
//		}
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: observer})
//		if err != nil {
//			panic(err)
//		}
//		defer locks.Close(ctx)
//		o := guard.OnceOptions{Terms: lockcore.Terms{Name: "charge"}}
//		outcome, err := guard.Once(ctx, locks, "charge:42", o, func(context.Context) error { return nil })
//		fmt.Println(outcome, err, "-", spans.GetSpans()[0].Name)
//	}
//
// A program that sets the global providers of OpenTelemetry calls tracing.New(tracing.Options{}).
// The telemetry shows the calls that ran, waited, did not run or lost their lease, and their
// holders. In holdfast, only this package and tracing/asynqtrace import OpenTelemetry. To use
// slogobs too, see [event.Join]. The page docs/operate.md shows how to find a cause with them, and
// has dashboards and alerts.
//
// # Spans
//
// Each guarded run has one span, from the call to the end of the run. Its name is the kind and
// Terms.Name: "exclusive account", "limited partner", "once charge". It is the parent of the
// handler's spans.
//
//   - A call that waited has a child span "acquire", from its entry into the wait queue to the
//     grant or the error.
//   - Both spans link to the span of the holder if its trace context is known at that time. The
//     trace context is stored with the key. An invalid one is not linked.
//   - A run whose record Redis did not confirm at once has a child span "complete", from the end of
//     the handler until the record is stored or given up. If it is given up, the status of the span
//     is Error.
//   - A nested call, a call with invalid arguments, and a call whose ctx has ended before it have
//     no span.
//
// The attributes of the span of a run:
//
//	holdfast.kind            string  exclusive, once; shared or limited for a call that gets a share
//	holdfast.name            string  Terms.Name
//	holdfast.backend         string  redis, memory (this process only), or "a majority of" and the addresses
//	holdfast.locker          string  UUID of the Locker that made the call, see lockcore.Locker.ID
//	holdfast.key.digest      string  first 8 bytes of the SHA-256 of the key, in hex
//	holdfast.key             string  the key; only with Options.ExposeRawKeys
//	holdfast.outcome         string  see below
//	holdfast.wait.duration   double  s, from the call to its outcome or the grant
//	holdfast.contended       bool    the call waited for another holder
//	holdfast.queue.length    int     longest wait queue that the call saw; on "acquire": at its start
//	holdfast.attempt         int     number of this run of the key, or of the recorded run, from 1
//	holdfast.takeover        bool    the previous holder abandoned the key
//	holdfast.limit           int     lockcore.Limit.N; only if the kind is limited
//	holdfast.token           int     fencing token
//	holdfast.hold.duration   double  s, from the grant to the end of the handler
//	holdfast.renewals        int     renewals that succeeded
//	holdfast.renewal_errors  int     renewals that got no reply
//	holdfast.cause           string  why the lease was lost: lost, max_hold, stalled, revoked, replaced, given_up; only if it was lost
//	holdfast.stale           bool    true if Redis no longer had the hold at its end; else not set
//	error.type               string  only if the status is Error
//
// error.type follows the semantic conventions. It is the first of these that exists:
//
//  1. the result of the error's method ErrorType() string
//  2. a class of this module (lost, max_hold, unavailable, …), canceled, timeout or panic
//  3. the Go type at the end of the error's chain
//  4. _OTHER
//
// The events of the span of a run:
//
//	"holdfast.lost"            the lease ended early; with holdfast.cause
//	"holdfast.overrun"         the handler continued after its ctx had ended; with holdfast.cause
//	"holdfast.renewal_failed"  a renewal got no reply; with error.type
//	"holdfast.release_failed"  the release got no reply, and the key is free at the end of its lease at the latest; with error.type
//	"holdfast.nested_wait"     a nested call waits for another one; with holdfast.queue.length
//
// # Outcomes
//
//	completed    the handler ran and returned nil
//	took_over    the same, for a key that the previous holder had abandoned
//	transferred  the handler transferred its hold to another process, see lockcore.Lease.Ticket
//	bad_ticket   the ticket of an Adopt was used, late, revoked or malformed
//	unsupported  the servers of the Locker cannot do it, see lockcore.NewQuorum
//	failed       the handler returned an error, panicked, or under httpmw.Idempotent wrote a response that is not recorded, such as a 500
//	replayed     the key was done
//	admitted     a call of Throttle: its rate has let it begin
//	busy         another holder has the key, or had it until the caller gave up; or a guard inside the handler found its own key busy
//	mismatch     the key was used with another fingerprint
//	canceled     the ctx of the call ended first
//	abandoned    an earlier run abandoned the key, and the call does not take it over (AtMostOnce)
//	unavailable  Redis did not reply, or cannot serve the command
//	closed       the Locker was closed while the call waited
//	bad_record   the key is done, but its record does not decode
//	lost         the handler ran, but the lease ended before it returned; holdfast.cause has the reason
//	unknown      the handler ran and abandoned its key: a panic with AtMostOnce, guard.Unknown, or a takeover that failed
//
// The status of the span is Error, with error.type, for failed, abandoned, unavailable, closed,
// bad_record, lost and unknown. Otherwise it is not set.
//
// Under httpmw.Exclusive, Shared and Limited a response with status 500 is completed, because they
// do not observe the status. The span and the metrics of the HTTP server have it.
//
// # Metrics
//
// docs/operate.md lists the metrics with their labels and the values of these.
//
// # Guarantees
//
//   - No span or metric has the text of an error, because it may contain the key or a host name.
//   - No span or metric has the key. Options.ExposeRawKeys adds it to the spans only.
package tracing
