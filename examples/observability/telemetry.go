package main

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/tracing"
)

type tracer = trace.Tracer

// telemetry is what a program sets up once: the exporters of metrics and spans, and the Observer.
type telemetry struct {
	observer event.Observer
	tracer   tracer // for the program's own spans
	metrics  http.Handler
	spans    *ring
	close    func() error
}

func newTelemetry() (*telemetry, error) {
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer, which also has the Go runtime's metrics
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	spans := &ring{}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)) // in production: WithBatcher and the OTLP exporter
	observer, err := tracing.New(tracing.Options{TracerProvider: traces, MeterProvider: meters})
	if err != nil {
		return nil, err
	}
	return &telemetry{
		observer: observer, tracer: traces.Tracer("example"), spans: spans,
		metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		close: func() error {
			ctx := context.Background()
			return errors.Join(traces.Shutdown(ctx), meters.Shutdown(ctx))
		},
	}, nil
}

func (t *telemetry) routes(mux *http.ServeMux) {
	mux.Handle("GET /metrics", t.metrics)
	mux.Handle("GET /debug/spans", t.spans)
}
