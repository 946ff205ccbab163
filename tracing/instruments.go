package tracing

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Boundaries in seconds. OpenTelemetry's own, from 5 to 10,000, are for milliseconds.
var (
	waitBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBuckets = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)

type instruments struct {
	wait, hold metric.Float64Histogram
	held       metric.Int64UpDownCounter

	acquisitions, contentions, lost, overruns, completionsFailed metric.Int64Counter
	renewals, conflictsLost, noKey, badRecords, misconfigured    metric.Int64Counter
	payloadMismatches                                            metric.Int64Counter

	kept, gone, failed metric.MeasurementOption
}

func newInstruments(m metric.Meter) (instruments, error) {
	var errs []error
	histogram := func(name, text string, buckets []float64) metric.Float64Histogram {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
			metric.WithExplicitBucketBoundaries(buckets...))
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		errs = append(errs, err)
		return c
	}
	held, err := m.Int64UpDownCounter("holdfast.leases.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases held by this process"))
	errs = append(errs, err)
	in := instruments{
		wait:              histogram("holdfast.wait.duration", "Time from a call to its outcome or its grant", waitBuckets),
		hold:              histogram("holdfast.hold.duration", "Time from a grant to the end of the handler", holdBuckets),
		held:              held,
		acquisitions:      counter("holdfast.acquisitions", "{call}", "Calls by outcome"),
		contentions:       counter("holdfast.contentions", "{call}", "Calls that found the key busy"),
		lost:              counter("holdfast.leases.lost", "{lease}", "Leases that ended before their handlers"),
		overruns:          counter("holdfast.overruns", "{lease}", "Handlers that ran on after their context had ended"),
		completionsFailed: counter("holdfast.completions.failed", "{record}", "Records that could not be stored"),
		renewals:          counter("holdfast.renewals", "{renewal}", "Renewals by result"),
		conflictsLost:     counter("holdfast.conflicts.lost", "{job}", "Conflicts that used up the last attempt of a job"),
		noKey:             counter("holdfast.no_key", "{job}", "Jobs and requests without a key"),
		badRecords:        counter("holdfast.bad_records", "{record}", "Stored records that do not decode"),
		payloadMismatches: counter("holdfast.payload_mismatches", "{call}", "Done keys that were called with another payload and replayed"),
		misconfigured:     counter("holdfast.misconfigured", "{problem}", "Problems of the setup"),
		kept:              result("kept"), gone: result("gone"), failed: result("failed"),
	}
	return in, errors.Join(errs...)
}

func result(s string) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(attrResult, s)))
}

func (in *instruments) renewed(ctx context.Context, p lockcore.RenewPass) {
	for _, r := range []struct {
		n      int
		result metric.MeasurementOption
	}{{p.Kept, in.kept}, {p.Gone, in.gone}, {p.Failed, in.failed}} {
		if r.n > 0 {
			in.renewals.Add(ctx, int64(r.n), r.result)
		}
	}
}
