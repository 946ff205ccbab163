package tracing_test

import (
	"context"
	"testing"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

// BenchmarkObserver measures what this package alone adds to an uncontended run.
func BenchmarkObserver(b *testing.B) {
	obs := noopObserver(b)
	a := event.Acquisition{Kind: event.KindExclusive, Name: "account", Key: "account:42"}
	b.ReportAllocs()
	for b.Loop() {
		ctx := obs.Start(b.Context(), a)
		_ = obs.Traceparent(ctx)
		obs.Event(ctx, event.Granted{Attempt: 1, Token: 1})
		obs.Event(ctx, event.Released{})
	}
}

// BenchmarkExclusive measures a complete run on a real server, without an Observer and with a no-op
// one.
func BenchmarkExclusive(b *testing.B) {
	for name, obs := range map[string]event.Observer{"nil": nil, "noop": noopObserver(b)} {
		b.Run(name, func(b *testing.B) {
			locks, err := lockcore.New(redistest.Real(b).Client(b), lockcore.Options{Observer: obs})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = locks.Close(context.Background()) })
			b.ReportAllocs()
			for b.Loop() {
				err := guard.Exclusive(b.Context(), locks, "account:42", lockcore.Terms{Name: "account"}, func(context.Context) error { return nil })
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func noopObserver(b *testing.B) event.Observer {
	b.Helper()
	obs, err := tracing.New(tracing.Options{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()})
	if err != nil {
		b.Fatal(err)
	}
	return obs
}
