package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/version"
)

const scope = "github.com/holdfast-go/holdfast/tracing"

// Options are the options of [New]. The zero value is ready to use and exposes no keys.
type Options struct {
	// TracerProvider makes the spans. Default: otel.GetTracerProvider(), also if it is set later.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Default: otel.GetMeterProvider(), also if it is set later.
	MeterProvider metric.MeterProvider
	// ExposeRawKeys adds the key to the span of each run, as holdfast.key. Keys often name people
	// or accounts, and all readers of the traces can then read them. Default: only a digest.
	// Metrics never have keys.
	ExposeRawKeys bool
}

// New returns an Observer for [lockcore.Options] that makes the spans in the documentation of this
// package and the metrics in docs/operate.md. The instrumentation scope has the version of this
// module, and the schema URL of the semantic conventions for error.type.
//
// One Observer can serve any number of Lockers. If two Observers of one MeterProvider both have
// parked tasks of a kind and name, only one of them reports these. New returns an error only if the
// MeterProvider returns one for an instrument.
func New(o Options) (event.Observer, error) {
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	in, err := newInstruments(o.MeterProvider.Meter(scope, metric.WithInstrumentationVersion(version.String()), metric.WithSchemaURL(semconv.SchemaURL)))
	if err != nil {
		return nil, err
	}
	tracer := o.TracerProvider.Tracer(scope, trace.WithInstrumentationVersion(version.String()), trace.WithSchemaURL(semconv.SchemaURL))
	return &observer{tracer: tracer, in: in, rawKeys: o.ExposeRawKeys}, nil
}

type observer struct {
	tracer  trace.Tracer
	in      instruments
	rawKeys bool
	classes sync.Map // of kind and name to *class
}

// callKey contains the observer, so two Observers on one Locker (event.Join) each find their
// own call.
type callKey struct{ *observer }

// OnlyTraces returns true: metrics and spans do not replace the warnings of a Locker.
func (o *observer) OnlyTraces() bool { return true }

// Start begins the span of a run. The returned ctx carries the new call. An outer call that
// ctx carries does not change.
func (o *observer) Start(ctx context.Context, at event.Acquisition) context.Context {
	a := &call{o: o, class: o.classOf(at)}
	title := a.kind.Value.AsString()
	if at.Name != "" {
		title += " " + at.Name
	}
	ctx, a.span = o.tracer.Start(ctx, title, trace.WithAttributes(a.kind, a.name))
	if a.span.IsRecording() {
		a.span.SetAttributes(
			attribute.String(attrBackend, at.Backend), attribute.String(attrLocker, at.Locker), attribute.String(attrDigest, digest(at.Key)),
		)
		if at.Limit > 0 {
			a.span.SetAttributes(attribute.Int(attrLimit, at.Limit))
		}
		if o.rawKeys {
			a.span.SetAttributes(attribute.String(attrKey, at.Key))
		}
	}
	return context.WithValue(ctx, callKey{o}, a)
}

// Event passes e to the call of ctx. Events that belong to no call are counted with any ctx.
func (o *observer) Event(ctx context.Context, e event.Event) {
	a, _ := ctx.Value(callKey{o}).(*call)
	switch e := e.(type) {
	case event.RenewPass:
		o.in.renewed(ctx, e)
	case event.NoKey:
		o.in.noKey.Add(ctx, 1, metric.WithAttributes(attribute.String(attrName, e.Name)))
	case event.ConflictLost:
		o.in.conflictsLost.Add(ctx, 1, metric.WithAttributes(attribute.String(attrName, e.Name)))
	case event.PayloadDiffers:
		o.in.payloadMismatches.Add(ctx, 1, metric.WithAttributes(attribute.String(attrName, e.Name)))
	case event.TickAbandoned:
		o.in.ticksAbandoned.Add(ctx, 1, metric.WithAttributes(attribute.String(attrName, e.Name)))
	case event.Replaced:
		o.in.replaced.Add(ctx, 1, metric.WithAttributes(attribute.String(attrName, e.Name)))
	case event.Parked:
		c := o.classOf(event.Acquisition{Kind: e.Kind, Name: e.Name})
		o.in.parked.Add(ctx, 1, c.again[e.Again])
		o.in.parkedKeys.record(c, e.Key, e.Count, e.Oldest, e.Delay)
	case event.Unparked:
		c := o.classOf(event.Acquisition{Kind: e.Kind, Name: e.Name})
		o.in.parkedTime.Record(ctx, e.Parked.Seconds(), c.both)
		o.in.parkedKeys.record(c, e.Key, e.Count, e.Oldest, 0)
	case event.CleanupFailed:
		o.in.cleanupsFailed.Add(ctx, int64(e.N))
	case event.Paused:
		if e.For > 0 {
			o.in.pauses.Add(ctx, 1)
		}
	case event.ServerFailed:
		o.in.serversFailed.Add(ctx, 1, labels(attribute.String(attrServer, e.Server)))
	case event.ServerRecovered:
		o.in.serversFailed.Add(ctx, -1, labels(attribute.String(attrServer, e.Server)))
	case event.GroupSent:
		o.in.groupCalls.Record(ctx, int64(e.Calls))
		o.in.groupWait.Record(ctx, e.Waited.Seconds())
	case event.Misconfigured:
		o.in.misconfigured.Add(ctx, 1)
	case event.BadRecord:
		o.in.badRecords.Add(ctx, 1)
	default:
		if a != nil { // else another Observer has started the call
			a.event(ctx, e)
		}
	}
}

// Traceparent returns the W3C traceparent of the span in ctx, or "" if there is none.
func (o *observer) Traceparent(ctx context.Context) string {
	c := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, c)
	return c.Get("traceparent")
}

// spanOf returns the span of a holder's traceparent. It extracts into an empty context. In a
// context with a span, an invalid traceparent would leave that span in place, and the waiter would
// link to itself.
func spanOf(traceparent string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": traceparent})
	return trace.SpanContextFromContext(ctx)
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:8])
}
