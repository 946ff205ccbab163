package tracing

import (
	"cmp"
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
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
	attrServer      = "holdfast.server"
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

// call is one call of a Locker. The ctx of Start carries it. Its events arrive one after another,
// except CompletionFailed and CompletionStored: mu decides which of them and Released comes first.
type call struct {
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

func (c *call) event(ctx context.Context, e event.Event) {
	switch e := e.(type) {
	case event.Waiting:
		if e.Nested { // a nested call waits, and the run continues
			c.span.AddEvent(eventNestedWait, trace.WithAttributes(attribute.Int(attrQueue, e.Queue)))
			return
		}
		c.waiting(ctx, e)
	case event.Granted:
		c.granted(ctx, e)
	case event.Refused:
		c.refused(ctx, e)
	case event.Replayed:
		c.span.SetAttributes(attribute.Int(attrQueue, e.Queue), attribute.Int(attrAttempt, e.Attempt))
		c.waited(ctx, e.Waited, e.Contended)
		c.end(ctx, outcomeReplayed, "")
	case event.Admitted:
		c.span.SetAttributes(attribute.Int(attrQueue, e.Queue))
		c.waited(ctx, e.Waited, e.Contended)
		c.end(ctx, outcomeAdmitted, "")
	case event.RenewFailed:
		c.failed(eventRenewFailed, e.Err)
	case event.Lost:
		cause := errorType(e.Cause)
		c.span.AddEvent(eventLost, trace.WithAttributes(attribute.String(attrCause, cause)))
		c.o.in.lost.Add(ctx, 1, c.ofCause(cause))
	case event.Overrun:
		c.span.AddEvent(eventOverrun, trace.WithAttributes(attribute.String(attrCause, errorType(e.Cause))))
		c.o.in.overruns.Add(ctx, 1, c.both)
	case event.Released:
		c.released(ctx, e)
	case event.CompletionFailed:
		c.o.in.completionsFailed.Add(ctx, 1, c.both)
		c.settle(cmp.Or(e.Err, lockcore.ErrUnavailable))
	case event.CompletionStored:
		c.settle(nil)
	}
}

func (c *call) waiting(ctx context.Context, e event.Waiting) {
	queue := attribute.Int(attrQueue, e.Queue)
	c.span.SetAttributes(queue)
	opts := []trace.SpanStartOption{trace.WithAttributes(c.kind, c.name, queue)}
	if holder := spanOf(e.Holder.Traceparent); holder.IsValid() {
		link := trace.Link{SpanContext: holder}
		c.span.AddLink(link)
		opts = append(opts, trace.WithLinks(link))
	}
	_, c.acquire = c.o.tracer.Start(ctx, "acquire", opts...)
}

func (c *call) granted(ctx context.Context, e event.Granted) {
	c.tookOver = e.Abandoned
	c.span.SetAttributes(
		attribute.Int(attrQueue, e.Queue), attribute.Int(attrAttempt, e.Attempt),
		attribute.Bool(attrTakeover, e.Abandoned), attribute.Int64(attrToken, e.Token),
	)
	c.waited(ctx, e.Waited, e.Contended)
	c.o.in.held.Add(ctx, 1, c.both)
	if e.Abandoned {
		c.o.in.takeovers.Add(ctx, 1, c.both)
	}
}

func (c *call) refused(ctx context.Context, e event.Refused) {
	c.span.SetAttributes(attribute.Int(attrQueue, e.Queue))
	if c.acquire == nil { // without a Waiting event the holder has no link yet
		if holder := spanOf(holderOf(e.Err).Traceparent); holder.IsValid() {
			c.span.AddLink(trace.Link{SpanContext: holder})
		}
	}
	c.waited(ctx, e.Waited, e.Contended)
	c.end(ctx, outcomeOf(e.Err), errorType(e.Err))
}

func (c *call) released(ctx context.Context, e event.Released) {
	c.span.SetAttributes(
		attribute.Float64(attrHold, e.Held.Seconds()),
		attribute.Int(attrRenewals, e.Renewals), attribute.Int(attrRenewErrors, e.Failures),
	)
	if e.Stale {
		c.span.SetAttributes(attribute.Bool(attrStale, true))
	}
	switch {
	case e.Err != nil && e.Completed:
		c.pending(ctx)
	case e.Err != nil:
		c.failed(eventReleaseFailed, e.Err)
	}
	c.o.in.held.Add(ctx, -1, c.both)
	c.o.in.hold.Record(ctx, e.Held.Seconds(), c.both)
	if e.Lost != nil {
		c.span.SetAttributes(attribute.String(attrCause, errorType(e.Lost)))
	}
	o, class := outcomeOfRun(e, c.tookOver)
	c.end(ctx, o, class)
}

// pending begins the span of a completion that is retried asynchronously. If the completion has
// been settled already, it ends the span too.
func (c *call) pending(ctx context.Context) {
	_, span := c.o.tracer.Start(ctx, "complete", trace.WithAttributes(c.kind, c.name))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.complete = span; c.settled {
		c.endCompleteLocked()
	}
}

// settle ends the span of a completion. If the span has not begun yet, pending ends it. err is why
// the record could not be stored, or nil.
func (c *call) settle(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled {
		return
	}
	c.settled, c.unstored = true, err
	if c.complete != nil {
		c.endCompleteLocked()
	}
}

func (c *call) endCompleteLocked() {
	if c.unstored != nil {
		c.complete.SetAttributes(semconv.ErrorTypeKey.String(errorType(c.unstored)))
		c.complete.SetStatus(codes.Error, "not stored")
	}
	c.complete.End()
}

// ofCause returns the labels of a lost lease.
func (c *call) ofCause(cause string) metric.MeasurementOption {
	if set, ok := c.causes[cause]; ok {
		return set
	}
	return labels(c.kind, c.name, attribute.String(attrCause, cause))
}

// waited ends the span of the wait, if there was one, and records the time.
func (c *call) waited(ctx context.Context, d time.Duration, contended bool) {
	if c.acquire != nil {
		c.acquire.End()
	}
	c.span.SetAttributes(attribute.Float64(attrWait, d.Seconds()), attribute.Bool(attrContended, contended))
	c.o.in.wait.Record(ctx, d.Seconds(), c.both)
	if contended {
		c.o.in.contentions.Add(ctx, 1, c.both)
	}
}

// end ends the span of a call. class is the error.type, and is used only if o is an error.
func (c *call) end(ctx context.Context, o outcome, class string) {
	out := attribute.String(attrOutcome, string(o))
	c.o.in.acquisitions.Add(ctx, 1, c.outcomes[o])
	c.span.SetAttributes(out)
	if o.isError() {
		c.span.SetAttributes(semconv.ErrorTypeKey.String(class))
		c.span.SetStatus(codes.Error, string(o)) // the text of the error may name the key or a host
	}
	c.span.End()
}

func (c *call) failed(what string, err error) {
	c.span.AddEvent(what, trace.WithAttributes(semconv.ErrorTypeKey.String(errorType(err))))
}
