package tracing_test

import (
	"context"
	"fmt"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

// The program in the documentation of the package.
func Example() {
	ctx, spans := context.Background(), tracetest.NewInMemoryExporter() // in production: the OTLP exporter
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	observer, err := tracing.New(tracing.Options{TracerProvider: provider})
	if err != nil {
		panic(err)
	}
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: observer})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	o := guard.OnceOptions{Terms: lockcore.Terms{Name: "charge"}}
	outcome, err := guard.Once(ctx, locks, "charge:42", o, func(context.Context) error { return nil })
	fmt.Println(outcome, err, "-", spans.GetSpans()[0].Name)
	// Output: ran <nil> - once charge
}
