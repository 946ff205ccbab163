package tracing_test

import (
	"context"
	"fmt"
	"log"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

// Every guarded run has a span with its outcome.
func Example_outcome() {
	spans := tracetest.NewInMemoryExporter() // in production: the OTLP exporter
	observer, err := tracing.New(tracing.Options{
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
	})
	if err != nil {
		log.Fatal(err)
	}
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: observer})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	o := guard.OnceOptions{Terms: lockcore.Terms{Name: "charge"}}
	for range 2 {
		_, err := guard.Once(context.Background(), locks, "charge:42", o, func(context.Context) error { return nil })
		if err != nil {
			log.Fatal(err)
		}
	}
	for _, span := range spans.GetSpans() {
		for _, a := range span.Attributes {
			if a.Key == "holdfast.outcome" {
				fmt.Printf("%s: %s\n", span.Name, a.Value.AsString())
			}
		}
	}
	// Output:
	// once charge: completed
	// once charge: replayed
}
