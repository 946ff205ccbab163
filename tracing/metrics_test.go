package tracing_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

// What belongs to no attempt is counted with any ctx, also with that of an attempt, and leaves its span alone.
func TestReportsAreCounted(t *testing.T) {
	r := newRig(t, tracing.Options{})
	attempt := r.Start(t.Context(), charge)
	for _, ctx := range []context.Context{t.Context(), attempt} {
		r.Event(ctx, lockcore.RenewPass{Leases: 9, Kept: 6, Gone: 1, Failed: 2})
		r.Event(ctx, lockcore.NoKey{Name: "account"})
		r.Event(ctx, lockcore.ConflictLost{Name: "account", Holder: lockcore.Holder{Host: "db7", Task: "t1"}})
		r.Event(ctx, lockcore.PayloadDiffers{Name: "account", Key: "account:42"})
		r.Event(ctx, lockcore.Misconfigured{Problem: "no Configure"})
		r.Event(ctx, lockcore.BadRecord{Err: errors.New("version 9")})
	}
	r.Event(attempt, lockcore.Replayed{})
	for _, tt := range []struct {
		metric string
		labels []string
		want   int64
	}{
		{"holdfast.renewals", []string{"holdfast.result", "kept"}, 12},
		{"holdfast.renewals", []string{"holdfast.result", "gone"}, 2},
		{"holdfast.renewals", []string{"holdfast.result", "failed"}, 4},
		{"holdfast.no_key", []string{"holdfast.name", "account"}, 2},
		{"holdfast.conflicts.lost", []string{"holdfast.name", "account"}, 2},
		{"holdfast.payload_mismatches", []string{"holdfast.name", "account"}, 2},
		{"holdfast.misconfigured", nil, 2},
		{"holdfast.bad_records", nil, 2},
		{"holdfast.acquisitions", nil, 1},
	} {
		if got := r.count(t, tt.metric, tt.labels...); got != tt.want {
			t.Errorf("%s%v is %d, want %d", tt.metric, tt.labels, got, tt.want)
		}
	}
	if s := r.span(t, "once charge"); len(s.Events) != 0 {
		t.Errorf("the attempt's span has events %v", s.Events)
	}
}

// Events of an attempt that this observer did not start, and events it does not know, change nothing.
func TestStrangeEventsAreIgnored(t *testing.T) {
	r := newRig(t, tracing.Options{})
	for _, e := range []lockcore.Event{
		nil,
		lockcore.Waiting{},
		lockcore.Granted{},
		lockcore.Refused{},
		lockcore.Replayed{},
		lockcore.RenewFailed{},
		lockcore.Lost{},
		lockcore.Overrun{},
		lockcore.Released{},
		lockcore.CompletionFailed{},
		struct{ lockcore.Event }{},
	} {
		r.Event(t.Context(), e)
	}
	ctx := r.Start(t.Context(), charge)
	r.Event(ctx, struct{ lockcore.Event }{})
	r.Event(ctx, lockcore.Refused{}) // without an error, which does not happen
	if n := r.count(t, "holdfast.acquisitions"); n != 1 {
		t.Errorf("acquisitions is %d, want 1", n)
	}
	r.addsUp(t)
}

// The ctx of a run has often ended when the run has: that must not cost its last numbers.
func TestACanceledContextStillCounts(t *testing.T) {
	r := newRig(t, tracing.Options{})
	parent, cancel := context.WithCancel(t.Context())
	ctx := r.Start(parent, charge)
	r.Event(ctx, lockcore.Granted{})
	cancel()
	r.Event(ctx, lockcore.Released{})
	r.addsUp(t)
	if n := r.count(t, "holdfast.acquisitions"); n != 1 {
		t.Errorf("acquisitions is %d, want 1", n)
	}
}

func TestACompletionThatFailsLateIsOnlyCounted(t *testing.T) {
	r := newRig(t, tracing.Options{})
	ctx := r.Start(t.Context(), charge)
	r.Event(ctx, lockcore.Granted{})
	r.Event(ctx, lockcore.Released{Completed: true, Err: lockcore.ErrUnavailable})
	r.Event(ctx, lockcore.CompletionFailed{Err: lockcore.ErrUnavailable})
	s := r.span(t, "once charge")
	if len(s.Events) != 1 || s.Events[0].Name != "release failed" {
		t.Errorf("span events: %v, want the failed release only", s.Events)
	}
	if n := r.count(t, "holdfast.completions.failed", "holdfast.name", "charge"); n != 1 {
		t.Errorf("completions.failed is %d, want 1", n)
	}
	r.addsUp(t)
}

func TestDurationsAreInSecondsWithBucketsForThem(t *testing.T) {
	r := newRig(t, tracing.Options{})
	ctx := r.Start(t.Context(), charge)
	r.Event(ctx, lockcore.Granted{Waited: 250 * time.Millisecond})
	r.Event(ctx, lockcore.Released{Held: 2 * time.Minute})
	for name, sum := range map[string]float64{"holdfast.wait.duration": 0.25, "holdfast.hold.duration": 120} {
		ps := r.points(t, name)
		if len(ps) != 1 || ps[0].n != 1 || ps[0].sum != sum {
			t.Errorf("%s: %v, want one value of %v", name, ps, sum)
			continue
		}
		if b := ps[0].bounds; !slices.IsSorted(b) || b[0] > 0.001 || b[len(b)-1] < 300 {
			t.Errorf("%s has buckets %v", name, b)
		}
	}
}

// A label that is not in the list would be the first step to one series a key.
func TestLabelsAreFew(t *testing.T) {
	r := newRig(t, tracing.Options{ExposeRawKeys: true})
	for _, tt := range outcomes {
		ctx := r.Start(t.Context(), charge)
		for _, e := range tt.events {
			r.Event(ctx, e)
		}
	}
	known := []string{"holdfast.kind", "holdfast.name", "holdfast.outcome", "holdfast.result", "holdfast.cause"}
	for _, s := range r.collect(t).ScopeMetrics {
		for _, m := range s.Metrics {
			for _, p := range r.points(t, m.Name) {
				for k := range p.labels {
					if !slices.Contains(known, k) {
						t.Errorf("%s has the label %s", m.Name, k)
					}
				}
			}
		}
	}
}

// A meter that refuses instruments makes New say so, all at once.
func TestNewReportsRefusedInstruments(t *testing.T) {
	obs, err := tracing.New(tracing.Options{MeterProvider: refusingProvider{}})
	if obs != nil || !errors.Is(err, errRefused) {
		t.Errorf("New = %v, %v; want no observer and %v", obs, err, errRefused)
	}
	if _, err := tracing.New(tracing.Options{}); err != nil {
		t.Errorf("with the global providers: %v", err)
	}
}

var errRefused = errors.New("refused")

type refusingProvider struct{ noop.MeterProvider }

func (refusingProvider) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, errRefused
}
