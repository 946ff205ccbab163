package tracing_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an Observer that keeps its spans and metrics in memory.
type rig struct {
	event.Observer
	spans  *tracetest.InMemoryExporter
	begun  *begun
	reader *sdkmetric.ManualReader
	tracer trace.Tracer // for spans outside of the Observer
}

func newRig(tb testing.TB, o tracing.Options) *rig {
	tb.Helper()
	r := &rig{spans: tracetest.NewInMemoryExporter(), begun: &begun{}, reader: sdkmetric.NewManualReader()}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans), sdktrace.WithSpanProcessor(r.begun))
	o.TracerProvider, o.MeterProvider = tp, sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	obs, err := tracing.New(o)
	if err != nil {
		tb.Fatal(err)
	}
	r.Observer, r.tracer = obs, tp.Tracer("test")
	return r
}

// begun collects the spans that were started, so that a test can check that they ended. It needs no
// shutdown.
type begun struct {
	sdktrace.SpanProcessor

	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
}

func (b *begun) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spans = append(b.spans, s)
}

func (b *begun) OnEnd(sdktrace.ReadOnlySpan) {}

// span returns the only ended span with that name.
func (r *rig) span(tb testing.TB, name string) tracetest.SpanStub {
	tb.Helper()
	var found []tracetest.SpanStub
	for _, s := range r.spans.GetSpans() {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		tb.Fatalf("%d spans %q ended, want 1", len(found), name)
	}
	return found[0]
}

// attrs returns the attributes of a span by key.
func attrs(s tracetest.SpanStub) map[string]any { return toMap(attribute.NewSet(s.Attributes...)) }

func toMap(s attribute.Set) map[string]any {
	m := map[string]any{}
	for _, kv := range s.ToSlice() {
		m[string(kv.Key)] = kv.Value.AsInterface()
	}
	return m
}

func (r *rig) collect(tb testing.TB) metricdata.ResourceMetrics {
	tb.Helper()
	var rm metricdata.ResourceMetrics
	if err := r.reader.Collect(tb.Context(), &rm); err != nil {
		tb.Fatal(err)
	}
	return rm
}

// point is one time series: the sum of a counter, the count of a histogram, or the value of a
// gauge.
type point struct {
	labels map[string]any
	n      int64
	sum    float64
	bounds []float64
}

func (r *rig) points(tb testing.TB, name string) []point {
	tb.Helper()
	var ps []point
	for _, s := range r.collect(tb).ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					ps = append(ps, point{labels: toMap(p.Attributes), n: p.Value})
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					ps = append(ps, point{labels: toMap(p.Attributes), n: int64(p.Count)}) //nolint:gosec // small
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					ps = append(ps, point{labels: toMap(p.Attributes), n: int64(p.Count), sum: p.Sum, bounds: p.Bounds}) //nolint:gosec // small
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					ps = append(ps, point{labels: toMap(p.Attributes), n: p.Value})
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					ps = append(ps, point{labels: toMap(p.Attributes), sum: p.Value})
				}
			default:
				tb.Fatalf("%s is a %T", name, m.Data)
			}
		}
	}
	return ps
}

// count returns the sum over the series of a metric that have the labels, given as key, value, key,
// value.
func (r *rig) count(tb testing.TB, name string, labels ...string) int64 {
	tb.Helper()
	var n int64
next:
	for _, p := range r.points(tb, name) {
		for i := 0; i < len(labels); i += 2 {
			if p.labels[labels[i]] != labels[i+1] {
				continue next
			}
		}
		n += p.n
	}
	return n
}

// addsUp checks I13 of proof/sim: every span that began has ended, and no lease is counted as
// held.
func (r *rig) addsUp(tb testing.TB) {
	tb.Helper()
	r.begun.mu.Lock()
	defer r.begun.mu.Unlock()
	for _, s := range r.begun.spans {
		if s.EndTime().IsZero() {
			tb.Errorf("span %q never ended", s.Name())
		}
	}
	if n := r.count(tb, "holdfast.lease.held"); n != 0 {
		tb.Errorf("holdfast.lease.held is %d at the end, want 0", n)
	}
}

// exported returns all exported spans and metrics as text.
func (r *rig) exported(tb testing.TB) string {
	tb.Helper()
	spans, err := json.Marshal(r.spans.GetSpans())
	if err != nil {
		tb.Fatal(err)
	}
	metrics, err := json.Marshal(r.collect(tb))
	if err != nil {
		tb.Fatal(err)
	}
	return string(spans) + string(metrics)
}

type traceLink struct {
	trace trace.TraceID
	span  trace.SpanID
}

func linksOf(s tracetest.SpanStub) []traceLink {
	var ls []traceLink
	for _, l := range s.Links {
		ls = append(ls, traceLink{l.SpanContext.TraceID(), l.SpanContext.SpanID()})
	}
	return ls
}
