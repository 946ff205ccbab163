package tracing

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	attrKind        = "holdfast.kind"
	attrName        = "holdfast.name"
	attrBackend     = "holdfast.backend"
	attrLocker      = "holdfast.locker"
	attrDigest      = "holdfast.key.digest"
	attrKey         = "holdfast.key"
	attrOutcome     = "holdfast.outcome"
	attrWait        = "holdfast.wait.duration"
	attrContended   = "holdfast.contended"
	attrQueue       = "holdfast.queue.length"
	attrAttempt     = "holdfast.attempt"
	attrTakeover    = "holdfast.takeover"
	attrLimit       = "holdfast.limit"
	attrToken       = "holdfast.token"
	attrHold        = "holdfast.hold.duration"
	attrRenewals    = "holdfast.renewals"
	attrRenewErrors = "holdfast.renewal_errors"
	attrCause       = "holdfast.cause"
	attrStale       = "holdfast.stale"
	attrResult      = "holdfast.result"
	attrAgain       = "holdfast.again"

	eventLost          = "holdfast.lost"
	eventOverrun       = "holdfast.overrun"
	eventNestedWait    = "holdfast.nested_wait"
	eventRenewFailed   = "holdfast.renewal_failed"
	eventReleaseFailed = "holdfast.release_failed"
)

// attempt is one guarded run. The ctx of Start carries it. Its events arrive one after another,
// except CompletionFailed and CompletionStored: mu decides which of them and Released comes first.
type attempt struct {
	*class

	o        *observer
	span     trace.Span
	acquire  trace.Span // from Waiting to the outcome or the grant, else nil
	tookOver bool

	mu       sync.Mutex
	complete trace.Span // from a Released without a reply until the record is stored or given up, else nil
	settled  bool       // the record was stored or given up
	unstored error      // why the record could not be stored, if settled
}

func (a *attempt) event(ctx context.Context, e event.Event) {
	switch e := e.(type) {
	case event.Waiting:
		if e.Nested { // a nested call waits, and the run continues
			a.span.AddEvent(eventNestedWait, trace.WithAttributes(attribute.Int(attrQueue, e.Queue)))
			return
		}
		a.waiting(ctx, e)
	case event.Granted:
		a.granted(ctx, e)
	case event.Refused:
		a.refused(ctx, e)
	case event.Replayed:
		a.span.SetAttributes(attribute.Int(attrQueue, e.Queue), attribute.Int(attrAttempt, e.Attempt))
		a.waited(ctx, e.Waited, e.Contended)
		a.end(ctx, outcomeReplayed, "")
	case event.RenewFailed:
		a.failed(eventRenewFailed, e.Err)
	case event.Lost:
		cause := errorType(e.Cause)
		a.span.AddEvent(eventLost, trace.WithAttributes(attribute.String(attrCause, cause)))
		a.o.in.lost.Add(ctx, 1, a.ofCause(cause))
	case event.Overrun:
		a.span.AddEvent(eventOverrun, trace.WithAttributes(attribute.String(attrCause, errorType(e.Cause))))
		a.o.in.overruns.Add(ctx, 1, a.both)
	case event.Released:
		a.released(ctx, e)
	case event.CompletionFailed:
		a.o.in.completionsFailed.Add(ctx, 1, a.both)
		a.settle(cmp.Or(e.Err, lockcore.ErrUnavailable))
	case event.CompletionStored:
		a.settle(nil)
	}
}

func (a *attempt) waiting(ctx context.Context, e event.Waiting) {
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

func (a *attempt) granted(ctx context.Context, e event.Granted) {
	a.tookOver = e.Abandoned
	a.span.SetAttributes(
		attribute.Int(attrQueue, e.Queue), attribute.Int(attrAttempt, e.Attempt),
		attribute.Bool(attrTakeover, e.Abandoned), attribute.Int64(attrToken, e.Token),
	)
	a.waited(ctx, e.Waited, e.Contended)
	a.o.in.held.Add(ctx, 1, a.both)
	if e.Abandoned {
		a.o.in.takeovers.Add(ctx, 1, a.both)
	}
}

func (a *attempt) refused(ctx context.Context, e event.Refused) {
	a.span.SetAttributes(attribute.Int(attrQueue, e.Queue))
	if a.acquire == nil { // without a Waiting event the holder has no link yet
		if holder := spanOf(holderOf(e.Err).Traceparent); holder.IsValid() {
			a.span.AddLink(trace.Link{SpanContext: holder})
		}
	}
	a.waited(ctx, e.Waited, e.Contended)
	a.end(ctx, outcomeOf(e.Err), errorType(e.Err))
}

func (a *attempt) released(ctx context.Context, e event.Released) {
	a.span.SetAttributes(
		attribute.Float64(attrHold, e.Held.Seconds()),
		attribute.Int(attrRenewals, e.Renewals), attribute.Int(attrRenewErrors, e.Failures),
	)
	if e.Stale {
		a.span.SetAttributes(attribute.Bool(attrStale, true))
	}
	switch {
	case e.Err != nil && e.Completed:
		a.pending(ctx)
	case e.Err != nil:
		a.failed(eventReleaseFailed, e.Err)
	}
	a.o.in.held.Add(ctx, -1, a.both)
	a.o.in.hold.Record(ctx, e.Held.Seconds(), a.both)
	if e.Lost != nil {
		a.span.SetAttributes(attribute.String(attrCause, errorType(e.Lost)))
	}
	o, class := outcomeOfRun(e, a.tookOver)
	a.end(ctx, o, class)
}

// pending begins the span of a completion that is retried asynchronously. If the completion has
// been settled already, it ends the span too.
func (a *attempt) pending(ctx context.Context) {
	_, span := a.o.tracer.Start(ctx, "complete", trace.WithAttributes(a.kind, a.name))
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.complete = span; a.settled {
		a.endCompleteLocked()
	}
}

// settle ends the span of a completion. If the span has not begun yet, pending ends it. err is why
// the record could not be stored, or nil.
func (a *attempt) settle(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.settled {
		return
	}
	a.settled, a.unstored = true, err
	if a.complete != nil {
		a.endCompleteLocked()
	}
}

func (a *attempt) endCompleteLocked() {
	if a.unstored != nil {
		a.complete.SetAttributes(semconv.ErrorTypeKey.String(errorType(a.unstored)))
		a.complete.SetStatus(codes.Error, "not stored")
	}
	a.complete.End()
}

// ofCause returns the labels of a lost lease.
func (a *attempt) ofCause(cause string) metric.MeasurementOption {
	if set, ok := a.causes[cause]; ok {
		return set
	}
	return labels(a.kind, a.name, attribute.String(attrCause, cause))
}

// waited ends the span of the wait, if there was one, and records the time.
func (a *attempt) waited(ctx context.Context, d time.Duration, contended bool) {
	if a.acquire != nil {
		a.acquire.End()
	}
	a.span.SetAttributes(attribute.Float64(attrWait, d.Seconds()), attribute.Bool(attrContended, contended))
	a.o.in.wait.Record(ctx, d.Seconds(), a.both)
	if contended {
		a.o.in.contentions.Add(ctx, 1, a.both)
	}
}

// end ends the span of an attempt. class is the error.type, and is used only if o is an error.
func (a *attempt) end(ctx context.Context, o outcome, class string) {
	out := attribute.String(attrOutcome, string(o))
	a.o.in.acquisitions.Add(ctx, 1, a.outcomes[o])
	a.span.SetAttributes(out)
	if o.isError() {
		a.span.SetAttributes(semconv.ErrorTypeKey.String(class))
		a.span.SetStatus(codes.Error, string(o)) // the text of the error may name the key or a host
	}
	a.span.End()
}

func (a *attempt) failed(what string, err error) {
	a.span.AddEvent(what, trace.WithAttributes(semconv.ErrorTypeKey.String(errorType(err))))
}
