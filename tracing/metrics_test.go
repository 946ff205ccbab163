package tracing_test

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

// Events that belong to no call are counted with any ctx, also with that of a call. They do
// not change its span.
func TestReportsAreCounted(t *testing.T) {
	r := newRig(t, tracing.Options{})
	call := r.Start(t.Context(), charge)
	for _, ctx := range []context.Context{t.Context(), call} {
		r.Event(ctx, event.RenewPass{Leases: 9, Kept: 6, Gone: 1, Failed: 2})
		r.Event(ctx, event.NoKey{Name: "account"})
		r.Event(ctx, event.ConflictLost{Name: "account", Holder: event.Holder{Host: "db7", Task: "t1"}})
		r.Event(ctx, event.PayloadDiffers{Name: "account", Key: "account:42"})
		r.Event(ctx, event.TickAbandoned{Name: "account", Key: "account@1"})
		r.Event(ctx, event.Replaced{Name: "account", Key: "account:42"})
		r.Event(ctx, event.Paused{Key: "account:42", For: time.Minute, Reason: "full"})
		r.Event(ctx, event.Paused{Key: "account:42"}) // its end
		r.Event(ctx, event.Parked{Name: "account", Kind: event.KindExclusive, Key: "account:42", Count: 1})
		r.Event(ctx, event.Parked{Name: "account", Kind: event.KindExclusive, Key: "account:42", Count: 1, Again: true})
		r.Event(ctx, event.Unparked{Name: "account", Kind: event.KindExclusive, Key: "account:42", Parked: time.Minute})
		r.Event(ctx, event.CleanupFailed{N: 3, Err: lockcore.ErrClosed})
		r.Event(ctx, event.ServerFailed{Server: "a:1", Err: lockcore.ErrUnavailable})
		r.Event(ctx, event.GroupSent{Calls: 7, Waited: time.Millisecond})
		r.Event(ctx, event.Misconfigured{Problem: "no Configure"})
		r.Event(ctx, event.BadRecord{Err: errors.New("version 9")})
	}
	r.Event(call, event.ServerRecovered{Server: "a:1"})
	r.Event(call, event.Replayed{})
	for _, tt := range []struct {
		metric string
		labels []string
		want   int64
	}{
		{"holdfast.renewals", []string{"holdfast.result", "kept"}, 12},
		{"holdfast.renewals", []string{"holdfast.result", "gone"}, 2},
		{"holdfast.renewals", []string{"holdfast.result", "failed"}, 4},
		{"holdfast.server.failed", []string{"holdfast.server", "a:1"}, 1},
		{"holdfast.no_key", []string{"holdfast.name", "account"}, 2},
		{"holdfast.conflict.lost", []string{"holdfast.name", "account"}, 2},
		{"holdfast.payload_mismatches", []string{"holdfast.name", "account"}, 2},
		{"holdfast.tick.abandoned", []string{"holdfast.name", "account"}, 2},
		{"holdfast.replaced", []string{"holdfast.name", "account"}, 2},
		{"holdfast.pauses", nil, 2},
		{"holdfast.parked", []string{"holdfast.kind", "exclusive", "holdfast.name", "account", "holdfast.again", "false"}, 2},
		{"holdfast.parked", []string{"holdfast.kind", "exclusive", "holdfast.name", "account", "holdfast.again", "true"}, 2},
		{"holdfast.parked.duration", []string{"holdfast.kind", "exclusive", "holdfast.name", "account"}, 2},
		{"holdfast.cleanup.failed", nil, 6},
		{"holdfast.group.calls", nil, 2},
		{"holdfast.group.wait", nil, 2},
		{"holdfast.misconfigured", nil, 2},
		{"holdfast.bad_records", nil, 2},
		{"holdfast.acquisitions", nil, 1},
	} {
		if got := r.count(t, tt.metric, tt.labels...); got != tt.want {
			t.Errorf("%s%v is %d, want %d", tt.metric, tt.labels, got, tt.want)
		}
	}
	if s := r.span(t, "once charge"); len(s.Events) != 0 {
		t.Errorf("the call's span has events %v", s.Events)
	}
}

// Events of a call that this Observer did not start, and events of an unknown type, have no
// effect.
func TestStrangeEventsAreIgnored(t *testing.T) {
	r := newRig(t, tracing.Options{})
	for _, e := range []event.Event{
		nil,
		event.Waiting{},
		event.Granted{},
		event.Refused{},
		event.Replayed{},
		event.RenewFailed{},
		event.Lost{},
		event.Overrun{},
		event.Released{},
		event.CompletionFailed{},
		struct{}{},
	} {
		r.Event(t.Context(), e)
	}
	ctx := r.Start(t.Context(), charge)
	r.Event(ctx, struct{}{})
	r.Event(ctx, event.Refused{}) // without an error, which does not happen
	if n := r.count(t, "holdfast.acquisitions"); n != 1 {
		t.Errorf("acquisitions is %d, want 1", n)
	}
	r.addsUp(t)
}

// The ctx of a run has often ended at its last event. That event still counts.
func TestACanceledContextStillCounts(t *testing.T) {
	r := newRig(t, tracing.Options{})
	parent, cancel := context.WithCancel(t.Context())
	ctx := r.Start(parent, charge)
	r.Event(ctx, event.Granted{})
	cancel()
	r.Event(ctx, event.Released{})
	r.addsUp(t)
	if n := r.count(t, "holdfast.acquisitions"); n != 1 {
		t.Errorf("acquisitions is %d, want 1", n)
	}
}

// A record that is stored late leaves no error on a span. A record that is not stored is an error
// on a separate span. Both hold for each order of Released and the event about the record.
func TestALateRecordIsASpanOfItsOwn(t *testing.T) {
	released := event.Released{Completed: true, Err: lockcore.ErrUnavailable}
	for _, tt := range []struct {
		last   event.Event
		status codes.Code
		failed int64
	}{
		{event.CompletionStored{}, codes.Unset, 0},
		{event.CompletionFailed{Err: lockcore.ErrUnavailable}, codes.Error, 1},
	} {
		for _, events := range [][]event.Event{{released, tt.last}, {tt.last, released}, {released, tt.last, tt.last}} {
			r := newRig(t, tracing.Options{})
			ctx := r.Start(t.Context(), charge)
			r.Event(ctx, event.Granted{})
			for _, e := range events {
				r.Event(ctx, e)
			}
			run, complete := r.span(t, "once charge"), r.span(t, "complete")
			if len(run.Events) != 0 || run.Status.Code != codes.Unset || attrs(run)["holdfast.outcome"] != "completed" {
				t.Errorf("%T: the run has events %v and status %v", tt.last, run.Events, run.Status)
			}
			failed := attrs(complete)["error.type"] == "unavailable"
			if complete.Parent.SpanID() != run.SpanContext.SpanID() || complete.Status.Code != tt.status || failed != (tt.failed > 0) {
				t.Errorf("%T: the span complete has status %v and attributes %v", tt.last, complete.Status, attrs(complete))
			}
			if n := r.count(t, "holdfast.completion.failed", "holdfast.name", "charge"); n < tt.failed || n > 0 && tt.failed == 0 {
				t.Errorf("%T: completion.failed is %d, want %d", tt.last, n, tt.failed)
			}
			r.addsUp(t)
		}
	}
}

// The counters of a class exist before its first event, with every outcome and cause of its kind.
// So the function rate of a monitoring system sees that event.
func TestCountersExistBeforeTheirFirstEvent(t *testing.T) {
	r := newRig(t, tracing.Options{})
	for _, name := range []string{"holdfast.bad_records", "holdfast.cleanup.failed", "holdfast.misconfigured", "holdfast.pauses"} {
		if ps := r.points(t, name); len(ps) != 1 || ps[0].n != 0 {
			t.Errorf("%s after New: %v, want one series with 0", name, ps)
		}
	}
	if ps := r.points(t, "holdfast.renewals"); len(ps) != 3 {
		t.Errorf("holdfast.renewals after New: %v, want three series", ps)
	}
	ctx := r.Start(t.Context(), charge)
	for name, series := range map[string]int{
		"holdfast.acquisitions": 16, "holdfast.contentions": 1, "holdfast.takeovers": 1, "holdfast.lease.held": 1, "holdfast.lease.lost": 6,
		"holdfast.overruns": 1, "holdfast.completion.failed": 1, "holdfast.conflict.lost": 1, "holdfast.no_key": 1, "holdfast.payload_mismatches": 1,
		"holdfast.tick.abandoned": 1, "holdfast.replaced": 1, "holdfast.parked": 2,
	} {
		ps := r.points(t, name)
		if len(ps) != series || r.count(t, name) != 0 {
			t.Errorf("%s after the first call of a class: %v, want %d series with 0", name, ps, series)
		}
	}
	for _, tt := range outcomes { // no event creates a new series
		ctx := r.Start(t.Context(), charge)
		for _, e := range tt.events {
			r.Event(ctx, e)
		}
	}
	r.Event(ctx, event.Replayed{})
	if n := len(r.points(t, "holdfast.acquisitions")); n != 16 {
		t.Errorf("acquisitions has %d series, want 16", n)
	}
	if n := len(r.points(t, "holdfast.lease.lost")); n != 6 {
		t.Errorf("lease.lost has %d series, want 6", n)
	}
	exclusive := newRig(t, tracing.Options{})
	exclusive.Event(exclusive.Start(t.Context(), event.Acquisition{Kind: event.KindExclusive}), event.Refused{})
	if n := len(exclusive.points(t, "holdfast.acquisitions")); n != 11 {
		t.Errorf("acquisitions of an exclusive class has %d series, want 11", n)
	}
}

// A takeover is counted at the grant, independent of the end of its run.
func TestTakeoversAreCountedAtTheGrant(t *testing.T) {
	r := newRig(t, tracing.Options{})
	ctx := r.Start(t.Context(), charge)
	r.Event(ctx, event.Granted{Attempt: 2, Abandoned: true})
	if n := r.count(t, "holdfast.takeovers", "holdfast.kind", "once", "holdfast.name", "charge"); n != 1 {
		t.Errorf("takeovers is %d while it runs, want 1", n)
	}
	r.Event(ctx, event.Released{Failed: context.Canceled})
	r.addsUp(t)
}

// Names and values are snake_case, and units follow UCUM. The instrumentation scope has a version
// and a schema.
func TestNamesFollowTheConventions(t *testing.T) {
	r := newRig(t, tracing.Options{})
	for _, kind := range []event.Kind{event.KindExclusive, event.KindOnce} {
		ctx := r.Start(t.Context(), event.Acquisition{Kind: kind, Name: "charge"})
		for _, e := range []event.Event{
			event.Granted{},
			event.RenewFailed{},
			event.Lost{Cause: lockcore.ErrMaxHold},
			event.Overrun{Cause: lockcore.ErrMaxHold},
			event.Released{Lost: lockcore.ErrMaxHold, Err: lockcore.ErrUnavailable},
		} {
			r.Event(ctx, e)
		}
	}
	r.Event(t.Context(), parkedTask("account:42", 1, time.Minute, 0))
	name := regexp.MustCompile(`^holdfast(\.[a-z]+(_[a-z]+)*)+$`)
	value := regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)
	unit := regexp.MustCompile(`^(s|\{[a-z]+\})$`)
	scopes := r.collect(t).ScopeMetrics
	for _, m := range scopes[0].Metrics {
		if !name.MatchString(m.Name) || !unit.MatchString(m.Unit) {
			t.Errorf("%s in %q", m.Name, m.Unit)
		}
		for _, p := range r.points(t, m.Name) {
			for k, v := range p.labels {
				if s, ok := v.(string); !name.MatchString(k) || !ok || !value.MatchString(s) {
					t.Errorf("%s has %s=%v", m.Name, k, v)
				}
			}
		}
	}
	for _, s := range r.spans.GetSpans() {
		for k := range attrs(s) {
			if !name.MatchString(k) && k != "error.type" {
				t.Errorf("span %s has %s", s.Name, k)
			}
		}
		for _, e := range s.Events {
			if !name.MatchString(e.Name) {
				t.Errorf("span %s has the event %s", s.Name, e.Name)
			}
		}
		if s.InstrumentationScope.Version == "" || s.InstrumentationScope.SchemaURL == "" {
			t.Errorf("scope %+v", s.InstrumentationScope)
		}
	}
	if s := scopes[0].Scope; s.Version == "" || s.SchemaURL == "" {
		t.Errorf("scope %+v", s)
	}
}

func TestDurationsAreInSecondsWithBucketsForThem(t *testing.T) {
	r := newRig(t, tracing.Options{})
	ctx := r.Start(t.Context(), charge)
	r.Event(ctx, event.Granted{Wait: event.Wait{Waited: 250 * time.Millisecond}})
	r.Event(ctx, event.Released{Held: 2 * time.Minute})
	r.Event(ctx, event.Unparked{Kind: charge.Kind, Name: charge.Name, Parked: time.Hour})
	for name, sum := range map[string]float64{"holdfast.wait.duration": 0.25, "holdfast.hold.duration": 120, "holdfast.parked.duration": 3600} {
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

// Metrics have only the known labels. Another label could lead to one series per key.
func TestLabelsAreFew(t *testing.T) {
	r := newRig(t, tracing.Options{ExposeRawKeys: true})
	for _, tt := range outcomes {
		ctx := r.Start(t.Context(), charge)
		for _, e := range tt.events {
			r.Event(ctx, e)
		}
	}
	r.Event(t.Context(), parkedTask("account:42", 1, time.Minute, 0))
	known := []string{"holdfast.kind", "holdfast.name", "holdfast.outcome", "holdfast.result", "holdfast.cause", "holdfast.again"}
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

// If a meter refuses instruments, New returns all these errors.
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

func (refusingMeter) RegisterCallback(metric.Callback, ...metric.Observable) (metric.Registration, error) {
	return noop.Registration{}, errRefused
}

func (refusingMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return noop.Int64Counter{}, errRefused
}
