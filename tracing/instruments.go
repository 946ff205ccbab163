package tracing

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Boundaries in seconds. The defaults of OpenTelemetry, from 5 to 10,000, are for milliseconds.
var (
	waitBuckets  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	groupBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1}
	holdBuckets  = []float64{.001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)

type instruments struct {
	wait, hold, parkedTime metric.Float64Histogram
	groupWait              metric.Float64Histogram
	groupCalls             metric.Int64Histogram
	held, serversFailed    metric.Int64UpDownCounter

	acquisitions, contentions, takeovers, lost, overruns, completionsFailed metric.Int64Counter
	renewals, conflictsLost, noKey, badRecords, misconfigured               metric.Int64Counter
	payloadMismatches, ticksAbandoned, cleanupsFailed, parked               metric.Int64Counter
	pauses, replaced                                                        metric.Int64Counter

	kept, gone, failed metric.MeasurementOption

	parkedKeys *parkedKeys
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
	groupCalls, err := m.Int64Histogram("holdfast.group.calls", metric.WithUnit("{call}"),
		metric.WithDescription("Calls in a group"), metric.WithExplicitBucketBoundaries(1, 2, 4, 8, 16, 32, 64))
	errs = append(errs, err)
	held, err := m.Int64UpDownCounter("holdfast.lease.held", metric.WithUnit("{lease}"),
		metric.WithDescription("Leases held by this process"))
	errs = append(errs, err)
	serversFailed, err := m.Int64UpDownCounter("holdfast.server.failed", metric.WithUnit("{server}"),
		metric.WithDescription("Servers of a majority that do not reply to this process"))
	errs = append(errs, err)
	in := instruments{
		wait:              histogram("holdfast.wait.duration", "Time from a call to its outcome or its grant", waitBuckets),
		hold:              histogram("holdfast.hold.duration", "Time from a grant to the end of the handler", holdBuckets),
		parkedTime:        histogram("holdfast.parked.duration", "Time from the first parking of a task until it gets its key or ends", holdBuckets),
		groupWait:         histogram("holdfast.group.wait", "Time that the first call of a group waited until the group was sent", groupBuckets),
		groupCalls:        groupCalls,
		held:              held,
		serversFailed:     serversFailed,
		acquisitions:      counter("holdfast.acquisitions", "{acquisition}", "Calls by outcome"),
		contentions:       counter("holdfast.contentions", "{acquisition}", "Calls that waited for another holder"),
		takeovers:         counter("holdfast.takeovers", "{lease}", "Leases of keys that the previous holder abandoned"),
		lost:              counter("holdfast.lease.lost", "{lease}", "Leases that ended before their handlers"),
		overruns:          counter("holdfast.overruns", "{lease}", "Handlers that ran on after their context had ended"),
		completionsFailed: counter("holdfast.completion.failed", "{record}", "Records that could not be stored"),
		renewals:          counter("holdfast.renewals", "{renewal}", "Renewals by result"),
		conflictsLost:     counter("holdfast.conflict.lost", "{job}", "Conflicts that used up the last attempt of a job"),
		noKey:             counter("holdfast.no_key", "{job}", "Jobs and requests without a key"),
		badRecords:        counter("holdfast.bad_records", "{record}", "Stored records that do not decode"),
		payloadMismatches: counter("holdfast.payload_mismatches", "{acquisition}", "Done keys that were called with another payload and replayed"),
		ticksAbandoned:    counter("holdfast.tick.abandoned", "{tick}", "Cron ticks whose instance died and which no other instance ran"),
		cleanupsFailed:    counter("holdfast.cleanup.failed", "{lease}", "Withdrawals and releases that Redis did not confirm"),
		misconfigured:     counter("holdfast.misconfigured", "{problem}", "Problems of the setup"),
		parked:            counter("holdfast.parked", "{task}", "Times that a task was parked"),
		pauses:            counter("holdfast.pauses", "{pause}", "Pauses of keys that this process has set"),
		replaced:          counter("holdfast.replaced", "{job}", "Jobs that ended without a run because a newer one was delivered"),
		kept:              result("kept"), gone: result("gone"), failed: result("failed"),
		parkedKeys: &parkedKeys{keys: map[parkedKey]parkedTasks{}, classes: map[*class]bool{}},
	}
	errs = append(errs, in.parkedKeys.observe(m))
	if err := errtext.Join(errs...); err != nil {
		return in, err
	}
	// rate and increase miss the first event of a counter that has no earlier value.
	ctx := context.Background()
	for _, r := range []metric.MeasurementOption{in.kept, in.gone, in.failed} {
		in.renewals.Add(ctx, 0, r)
	}
	in.badRecords.Add(ctx, 0)
	in.cleanupsFailed.Add(ctx, 0)
	in.misconfigured.Add(ctx, 0)
	in.pauses.Add(ctx, 0)
	return in, nil
}

// class is a kind of key and a name, and the labels of its series.
type class struct {
	kind, name attribute.KeyValue
	both, only metric.MeasurementOption // kind and name, name
	outcomes   map[outcome]metric.MeasurementOption
	causes     map[string]metric.MeasurementOption
	again      map[bool]metric.MeasurementOption // of a parked task
}

// classOf returns the class of a call. For the first call of a class it creates the series of
// its counters with the value 0. If two first calls race, the one that stores the class creates the
// series. The other may count earlier, which changes no sum.
func (o *observer) classOf(at event.Acquisition) *class {
	type id struct{ kind, name string }
	kind := kindOf(at)
	if c, ok := o.classes.Load(id{kind, at.Name}); ok {
		return c.(*class) //nolint:errcheck,forcetypeassert // the map has no other values
	}
	c := &class{kind: attribute.String(attrKind, kind), name: attribute.String(attrName, at.Name)}
	c.both, c.only = labels(c.kind, c.name), labels(c.name)
	c.outcomes, c.causes = map[outcome]metric.MeasurementOption{}, map[string]metric.MeasurementOption{}
	for _, v := range append(throttledOutcomes[:1:1], onceOutcomes...) {
		c.outcomes[v] = labels(c.kind, c.name, attribute.String(attrOutcome, string(v)))
	}
	for _, v := range causes {
		c.causes[v] = labels(c.kind, c.name, attribute.String(attrCause, v))
	}
	c.again = map[bool]metric.MeasurementOption{}
	for _, v := range []bool{false, true} {
		c.again[v] = labels(c.kind, c.name, attribute.String(attrAgain, strconv.FormatBool(v)))
	}
	if other, raced := o.classes.LoadOrStore(id{kind, at.Name}, c); raced {
		return other.(*class) //nolint:errcheck,forcetypeassert // the map has no other values
	}
	o.in.create(c, at.Kind)
	return c
}

const kindThrottled = "throttled"

// kindOf returns the kind of a call for telemetry. A share has a kind that a key does not have.
func kindOf(at event.Acquisition) string {
	switch {
	case at.Limit == lockcore.Unlimited:
		return "shared"
	case at.Limit > 0:
		return "limited"
	case at.Rate:
		return kindThrottled
	}
	return at.Kind.String()
}

func (in *instruments) create(c *class, kind event.Kind) {
	ctx := context.Background()
	outcomes := exclusiveOutcomes
	switch {
	case kind == event.KindOnce:
		outcomes = onceOutcomes
		in.completionsFailed.Add(ctx, 0, c.both)
	case c.kind.Value.AsString() == kindThrottled:
		outcomes = throttledOutcomes
	}
	for _, v := range outcomes {
		in.acquisitions.Add(ctx, 0, c.outcomes[v])
	}
	for _, v := range c.causes {
		in.lost.Add(ctx, 0, v)
	}
	for _, v := range c.again {
		in.parked.Add(ctx, 0, v)
	}
	in.held.Add(ctx, 0, c.both)
	for _, counter := range []metric.Int64Counter{in.contentions, in.takeovers, in.overruns} {
		counter.Add(ctx, 0, c.both)
	}
	in.conflictsLost.Add(ctx, 0, c.only)
	in.noKey.Add(ctx, 0, c.only)
	in.payloadMismatches.Add(ctx, 0, c.only)
	in.ticksAbandoned.Add(ctx, 0, c.only)
	in.replaced.Add(ctx, 0, c.only)
}

func labels(kv ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(kv...))
}

func result(s string) metric.MeasurementOption { return labels(attribute.String(attrResult, s)) }

func (in *instruments) renewed(ctx context.Context, p event.RenewPass) {
	for _, r := range []struct {
		n      int
		result metric.MeasurementOption
	}{{p.Kept, in.kept}, {p.Gone, in.gone}, {p.Failed, in.failed}} {
		if r.n > 0 {
			in.renewals.Add(ctx, int64(r.n), r.result)
		}
	}
}
