package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	attrKind        = "holdfast.kind"
	attrName        = "holdfast.name"
	attrDigest      = "holdfast.key.digest"
	attrKey         = "holdfast.key"
	attrOutcome     = "holdfast.outcome"
	attrWait        = "holdfast.wait.duration"
	attrContended   = "holdfast.contended"
	attrQueue       = "holdfast.queue.length"
	attrAttempt     = "holdfast.attempt"
	attrTakeover    = "holdfast.takeover"
	attrToken       = "holdfast.token"
	attrHold        = "holdfast.hold.duration"
	attrRenewals    = "holdfast.renewals"
	attrRenewErrors = "holdfast.renew_errors"
	attrCause       = "holdfast.cause"
	attrStale       = "holdfast.stale"
	attrResult      = "holdfast.result"
	attrErrorType   = "error.type"
)

// attempt is one guarded run. It travels in the ctx of Start. Its events come one after another, save
// CompletionFailed, which may come beside or after the last: that one touches only the span, which allows it.
type attempt struct {
	o          *observer
	kind, name attribute.KeyValue
	labels     metric.MeasurementOption // kind and name
	span       trace.Span
	acquire    trace.Span // from Waiting to the outcome or the grant, else nil
	tookOver   bool
}

func (a *attempt) event(ctx context.Context, e lockcore.Event) {
	switch e := e.(type) {
	case lockcore.Waiting:
		a.waiting(ctx, e)
	case lockcore.Granted:
		a.granted(ctx, e)
	case lockcore.Refused:
		a.refused(ctx, e)
	case lockcore.Replayed:
		a.span.SetAttributes(attribute.Int(attrQueue, e.Queue), attribute.Int(attrAttempt, e.Attempt))
		a.waited(ctx, e.Waited, e.Contended)
		a.end(ctx, outcomeReplayed, "")
	case lockcore.RenewFailed:
		a.failed("renew failed", e.Err)
	case lockcore.Lost:
		cause := attribute.String(attrCause, errorType(e.Cause))
		a.span.AddEvent("lost", trace.WithAttributes(cause))
		a.o.in.lost.Add(ctx, 1, metric.WithAttributes(a.kind, a.name, cause))
	case lockcore.Overrun:
		a.span.AddEvent("overrun", trace.WithAttributes(attribute.String(attrCause, errorType(e.Cause))))
		a.o.in.overruns.Add(ctx, 1, a.labels)
	case lockcore.Released:
		a.released(ctx, e)
	case lockcore.CompletionFailed:
		a.failed("completion failed", e.Err)
		a.o.in.completionsFailed.Add(ctx, 1, a.labels)
	}
}

func (a *attempt) waiting(ctx context.Context, e lockcore.Waiting) {
	queue := attribute.Int(attrQueue, e.Queue)
	a.span.SetAttributes(queue)
	opts := []trace.SpanStartOption{trace.WithAttributes(a.kind, a.name, queue)}
	if holder := spanOf(e.Holder.Traceparent); holder.IsValid() {
		link := trace.Link{SpanContext: holder}
		a.span.AddLink(link)
		opts = append(opts, trace.WithLinks(link))
	}
	_, a.acquire = a.o.tracer.Start(ctx, "acquire", opts...)
}

func (a *attempt) granted(ctx context.Context, e lockcore.Granted) {
	a.tookOver = e.Abandoned
	a.span.SetAttributes(
		attribute.Int(attrQueue, e.Queue), attribute.Int(attrAttempt, e.Attempt),
		attribute.Bool(attrTakeover, e.Abandoned), attribute.Int64(attrToken, e.Token),
	)
	a.waited(ctx, e.Waited, e.Contended)
	a.o.in.held.Add(ctx, 1, a.labels)
}

func (a *attempt) refused(ctx context.Context, e lockcore.Refused) {
	a.span.SetAttributes(attribute.Int(attrQueue, e.Queue))
	if a.acquire == nil { // it did not wait: nobody has told us of the holder yet
		if holder := spanOf(holderOf(e.Err).Traceparent); holder.IsValid() {
			a.span.AddLink(trace.Link{SpanContext: holder})
		}
	}
	a.waited(ctx, e.Waited, e.Contended)
	a.end(ctx, outcomeOf(e.Err), errorType(e.Err))
}

func (a *attempt) released(ctx context.Context, e lockcore.Released) {
	a.span.SetAttributes(
		attribute.Float64(attrHold, e.Held.Seconds()),
		attribute.Int(attrRenewals, e.Renewals), attribute.Int(attrRenewErrors, e.Failures),
	)
	if e.Stale {
		a.span.SetAttributes(attribute.Bool(attrStale, true))
	}
	if e.Err != nil {
		a.failed("release failed", e.Err)
	}
	a.o.in.held.Add(ctx, -1, a.labels)
	a.o.in.hold.Record(ctx, e.Held.Seconds(), a.labels)
	switch {
	case e.Lost != nil:
		cause := errorType(e.Lost)
		a.span.SetAttributes(attribute.String(attrCause, cause))
		a.end(ctx, outcomeLost, cause)
	case e.Abandoned:
		a.end(ctx, outcomeUnknown, "unknown")
	case a.tookOver:
		a.end(ctx, outcomeTookOver, "")
	default:
		a.end(ctx, outcomeRan, "")
	}
}

// waited is the end of the wait, if there was one.
func (a *attempt) waited(ctx context.Context, d time.Duration, contended bool) {
	if a.acquire != nil {
		a.acquire.End()
	}
	a.span.SetAttributes(attribute.Float64(attrWait, d.Seconds()), attribute.Bool(attrContended, contended))
	a.o.in.wait.Record(ctx, d.Seconds(), a.labels)
	if contended {
		a.o.in.contentions.Add(ctx, 1, a.labels)
	}
}

// end is the last of an attempt. The class of what went wrong counts only if o is an error.
func (a *attempt) end(ctx context.Context, o outcome, class string) {
	out := attribute.String(attrOutcome, string(o))
	a.o.in.acquisitions.Add(ctx, 1, metric.WithAttributes(a.kind, a.name, out))
	a.span.SetAttributes(out)
	if o.isError() {
		a.span.SetAttributes(attribute.String(attrErrorType, class))
		a.span.SetStatus(codes.Error, string(o)) // the text of the error may name the key or a host
	}
	a.span.End()
}

func (a *attempt) failed(what string, err error) {
	a.span.AddEvent(what, trace.WithAttributes(attribute.String(attrErrorType, errorType(err))))
}
