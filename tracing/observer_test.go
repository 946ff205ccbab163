package tracing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing"
)

const (
	holderTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent = "00-" + holderTrace + "-00f067aa0ba902b7-01"
)

var charge = event.Acquisition{
	Kind: event.KindOnce, Name: "charge", Key: "charge:42", Backend: "redis", Locker: "0b6c6d3e-8f7a-4f0e-9a34-5f0a4a0f3c11",
}

// outcomes are the possible courses of a call, and what its span shows.
var outcomes = []struct {
	name      string
	events    []event.Event
	outcome   string
	errorType string // and status Error; "" is status unset
	cause     string
}{
	{name: "runs", events: ran(event.Granted{Attempt: 1}, event.Released{}), outcome: "completed"},
	{name: "takes over", events: ran(event.Granted{Attempt: 2, Abandoned: true}, event.Released{}), outcome: "took_over"},
	{name: "is done", events: []event.Event{event.Replayed{Attempt: 3}}, outcome: "replayed"},
	{name: "is busy", events: refused(&lockcore.BusyError{Key: "charge:42"}), outcome: "busy"},
	{name: "is busy until the caller leaves", events: refused(errors.Join(&lockcore.BusyError{}, context.Canceled)), outcome: "busy"},
	{name: "has another fingerprint", events: refused(&lockcore.MismatchError{}), outcome: "mismatch"},
	{name: "is canceled", events: refused(fmt.Errorf("%w: %w", lockcore.ErrNotRun, context.Canceled)), outcome: "canceled"},
	{
		name: "is canceled for a reason", outcome: "canceled",
		events: refused(fmt.Errorf("%w: %w", lockcore.ErrNotRun, errors.New("shutdown"))),
	},
	{
		name: "is canceled with a command under way", outcome: "canceled",
		events: refused(errors.Join(lockcore.ErrUnavailable, context.Canceled)),
	},
	{name: "was abandoned", events: refused(&lockcore.AbandonedError{}), outcome: "abandoned", errorType: "abandoned"},
	{
		name: "finds no Redis", outcome: "unavailable", errorType: "unavailable",
		events: refused(fmt.Errorf("%w: %w", lockcore.ErrUnavailable, errors.New("dial tcp 10.0.0.7:6379"))),
	},
	{name: "finds the Locker closed", events: refused(lockcore.ErrClosed), outcome: "closed", errorType: "closed"},
	{
		name: "cannot read the record", outcome: "bad_record", errorType: "bad_record",
		events: refused(fmt.Errorf("%w: %q", lockcore.ErrRecord, "charge:42")),
	},
	{name: "fails", events: ran(event.Granted{Attempt: 1}, event.Released{Failed: errors.New("no such account")}), outcome: "failed", errorType: "_OTHER"},
	{
		name: "fails with a type", outcome: "failed", errorType: "*fs.PathError",
		events: ran(event.Granted{Attempt: 1}, event.Released{Failed: fmt.Errorf("read: %w", &fs.PathError{})}),
	},
	{
		name: "fails with a class of its own", outcome: "failed", errorType: "503",
		events: ran(event.Granted{Attempt: 1}, event.Released{Failed: fmt.Errorf("a: %w", typedError("503"))}),
	},
	{
		name: "finds another key busy inside", outcome: "busy",
		events: ran(event.Granted{Attempt: 1}, event.Released{Failed: guard.NoEffect(&lockcore.BusyError{Key: "payment:7"})}),
	},
	{
		name: "finds another key busy inside, and records that", outcome: "failed", errorType: "busy",
		events: ran(event.Granted{Attempt: 1}, event.Released{Failed: &lockcore.BusyError{Key: "account:42"}, Completed: true}),
	},
	{
		name: "fails after a takeover", outcome: "failed", errorType: "timeout",
		events: ran(event.Granted{Attempt: 2, Abandoned: true}, event.Released{Failed: context.DeadlineExceeded}),
	},
	{
		name: "fails because it is lost", outcome: "lost", errorType: "lost", cause: "lost",
		events: ran(event.Granted{Attempt: 1}, event.Lost{Cause: lockcore.ErrLost}, event.Released{Lost: lockcore.ErrLost, Failed: context.Canceled}),
	},
	{name: "is lost", events: lost(lockcore.ErrLost), outcome: "lost", errorType: "lost", cause: "lost"},
	{name: "takes too long", events: lost(lockcore.ErrMaxHold), outcome: "lost", errorType: "max_hold", cause: "max_hold"},
	{name: "is revoked", events: lost(lockcore.ErrRevoked), outcome: "lost", errorType: "revoked", cause: "revoked"},
	{name: "is cut off by Close", events: lost(lockcore.ErrGivenUp), outcome: "lost", errorType: "given_up", cause: "given_up"},
	{
		name: "panics under at most once", outcome: "unknown", errorType: "unknown",
		events: ran(event.Granted{Attempt: 1}, event.Released{Abandoned: true}),
	},
	{
		name: "transfers its hold", outcome: "transferred",
		events: ran(event.Granted{Attempt: 1}, event.Released{Transferred: true}),
	},
	{
		name: "a used ticket", outcome: "bad_ticket",
		events: []event.Event{event.Refused{Err: errtext.Wrap(lockcore.ErrNotRun, lockcore.ErrLost)}},
	},
	{
		name: "waits and runs", outcome: "completed",
		events: ran(event.Waiting{Queue: 1}, event.Granted{Wait: event.Wait{Contended: true, Queue: 2}}, event.Released{}),
	},
	{name: "waits and is refused", outcome: "busy", events: append(ran(event.Waiting{Queue: 1}), refused(&lockcore.BusyError{})...)},
	{
		name: "waits and is replayed", outcome: "replayed",
		events: ran(event.Waiting{Queue: 1}, event.Replayed{Wait: event.Wait{Contended: true}}),
	},
}

// typedError is an error with a class. The class "" means that it has none.
type typedError string

func (typedError) Error() string       { return "the text of an error, which is nowhere" }
func (e typedError) ErrorType() string { return string(e) }

func ran(e ...event.Event) []event.Event { return e }

func refused(err error) []event.Event { return ran(event.Refused{Err: err}) }

func lost(cause error) []event.Event {
	return ran(event.Granted{Attempt: 1}, event.Lost{Cause: cause}, event.Released{Lost: cause})
}

func TestEveryOutcomeEndsItsSpanAndIsCountedOnce(t *testing.T) {
	for _, tt := range outcomes {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, tracing.Options{})
			ctx := r.Start(t.Context(), charge)
			for _, e := range tt.events {
				r.Event(ctx, e)
			}
			s := r.span(t, "once charge")
			a := attrs(s)
			if a["holdfast.outcome"] != tt.outcome {
				t.Errorf("outcome is %v, want %v", a["holdfast.outcome"], tt.outcome)
			}
			wantStatus, wantType := codes.Unset, any(nil)
			if tt.errorType != "" {
				wantStatus, wantType = codes.Error, tt.errorType
			}
			if s.Status.Code != wantStatus || a["error.type"] != wantType {
				t.Errorf("status %v and error.type %v, want %v and %v", s.Status.Code, a["error.type"], wantStatus, wantType)
			}
			if tt.cause != "" {
				if a["holdfast.cause"] != tt.cause || r.count(t, "holdfast.lease.lost", "holdfast.cause", tt.cause) != 1 {
					t.Errorf("cause is %v, and lease.lost is not 1 for %v", a["holdfast.cause"], tt.cause)
				}
			}
			for _, e := range s.Events {
				if e.Name == "exception" {
					t.Error("the error was recorded as an exception")
				}
			}
			all, one := r.count(t, "holdfast.acquisitions"), r.count(t, "holdfast.acquisitions", "holdfast.outcome", tt.outcome)
			if all != 1 || one != 1 {
				t.Errorf("acquisitions: %d, of them %d %s, want 1", all, one, tt.outcome)
			}
			r.addsUp(t)
		})
	}
}

func TestASpanTellsTheWholeRun(t *testing.T) {
	r := newRig(t, tracing.Options{})
	ctx := r.Start(t.Context(), charge)
	for _, e := range []event.Event{
		event.Waiting{Holder: event.Holder{Host: "db7", Traceparent: traceparent}, Queue: 2},
		event.Granted{Wait: event.Wait{Waited: 1500 * time.Millisecond, Contended: true, Queue: 3}, Token: 7, Attempt: 2, Abandoned: true},
		event.RenewFailed{Err: context.DeadlineExceeded},
		event.Lost{Cause: lockcore.ErrLost},
		event.Overrun{Cause: lockcore.ErrLost},
		event.Released{Held: 4 * time.Second, Renewals: 5, Failures: 6, Lost: lockcore.ErrLost, Stale: true, Err: lockcore.ErrUnavailable},
	} {
		r.Event(ctx, e)
	}
	s := r.span(t, "once charge")
	want := map[string]any{
		"holdfast.kind": "once", "holdfast.name": "charge", "holdfast.key.digest": "ca4f34b8ffde070d",
		"holdfast.backend": "redis", "holdfast.locker": charge.Locker,
		"holdfast.outcome": "lost", "holdfast.wait.duration": 1.5, "holdfast.contended": true, "holdfast.queue.length": int64(3),
		"holdfast.attempt": int64(2), "holdfast.takeover": true, "holdfast.token": int64(7), "holdfast.hold.duration": 4.0,
		"holdfast.renewals": int64(5), "holdfast.renewal_errors": int64(6), "holdfast.cause": "lost", "holdfast.stale": true,
		"error.type": "lost",
	}
	got := attrs(s)
	for k, v := range want {
		if got[k] != v {
			t.Errorf("%s is %v, want %v", k, got[k], v)
		}
	}
	for k := range got {
		if _, ok := want[k]; !ok {
			t.Errorf("%s is not expected", k)
		}
	}
	var names []string
	for _, e := range s.Events {
		names = append(names, e.Name)
	}
	if got := strings.Join(names, ", "); got != "holdfast.renewal_failed, holdfast.lost, holdfast.overrun, holdfast.release_failed" {
		t.Errorf("span events: %s", got)
	}
	child := r.span(t, "acquire")
	if child.Parent.SpanID() != s.SpanContext.SpanID() || attrs(child)["holdfast.queue.length"] != int64(2) {
		t.Errorf("acquire has parent %v and attributes %v", child.Parent.SpanID(), attrs(child))
	}
	if !child.EndTime.Before(s.EndTime) {
		t.Error("acquire ended with the run, not with the grant")
	}
	r.addsUp(t)
}

// The span of a Locker in memory has its backend and its id. No metric has them, because each
// process would add time series.
func TestSpanNamesBackendAndLocker(t *testing.T) {
	r := newRig(t, tracing.Options{})
	l, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: r})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(t.Context()) }()
	lease, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := attrs(r.span(t, "exclusive"))
	if a["holdfast.backend"] != "memory (this process only)" || a["holdfast.locker"] != l.ID() {
		t.Errorf("attributes %v, want backend memory and locker %s", a, l.ID())
	}
	metrics, err := json.Marshal(r.collect(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{l.ID(), "holdfast.backend", "this process only"} {
		if strings.Contains(string(metrics), s) {
			t.Errorf("%q is in a metric", s)
		}
	}
}

func TestARunThatDidNotWaitHasNoChild(t *testing.T) {
	r := newRig(t, tracing.Options{})
	ctx := r.Start(t.Context(), event.Acquisition{Kind: event.KindExclusive, Key: "k"})
	r.Event(ctx, event.Granted{})
	r.Event(ctx, event.Released{})
	if got := r.spans.GetSpans(); len(got) != 1 || got[0].Name != "exclusive" {
		t.Errorf("spans: %v, want one, named by its kind alone", got)
	}
}

// A refusal without a wait has a link to the holder, also that of an abandoned key.
func TestRefusalsLinkToTheHolder(t *testing.T) {
	h := event.Holder{Traceparent: traceparent}
	for _, err := range []error{&lockcore.BusyError{Holder: h}, &lockcore.AbandonedError{Holder: h}} {
		r := newRig(t, tracing.Options{})
		r.Event(r.Start(t.Context(), charge), event.Refused{Wait: event.Wait{Contended: true}, Err: err})
		links := r.span(t, "once charge").Links
		if len(links) != 1 || links[0].SpanContext.TraceID().String() != holderTrace {
			t.Errorf("%T: links are %v", err, links)
		}
	}
}

// A bad traceparent gives no link. outer has a valid span, and the ctx of the run has the span of
// the run. A wrong implementation links to one of these.
func TestABadTraceparentLinksToNothing(t *testing.T) {
	for _, bad := range []string{
		"", "x", "00", traceparent[:54], strings.ToUpper(traceparent), "ff" + traceparent[2:],
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "00-" + holderTrace + "-0000000000000000-01", "\x00",
	} {
		r := newRig(t, tracing.Options{})
		outer, span := r.tracer.Start(t.Context(), "outer")
		ctx := r.Start(outer, charge)
		h := event.Holder{Traceparent: bad}
		r.Event(ctx, event.Waiting{Holder: h, Queue: 1})
		r.Event(ctx, event.Refused{Wait: event.Wait{Contended: true}, Err: &lockcore.BusyError{Holder: h}})
		r.Event(r.Start(outer, charge), event.Refused{Wait: event.Wait{Contended: true}, Err: &lockcore.BusyError{Holder: h}})
		span.End()
		for _, s := range r.spans.GetSpans() {
			if len(s.Links) != 0 {
				t.Errorf("%q: %q links to %v", bad, s.Name, s.Links[0].SpanContext)
			}
		}
		r.addsUp(t)
	}
}

func TestTraceparentIsThatOfTheRun(t *testing.T) {
	r := newRig(t, tracing.Options{})
	if got := r.Traceparent(t.Context()); got != "" {
		t.Errorf("without a span it is %q", got)
	}
	ctx := r.Start(t.Context(), charge)
	got := r.Traceparent(ctx)
	r.Event(ctx, event.Replayed{})
	sc := r.span(t, "once charge").SpanContext
	if want := "00-" + sc.TraceID().String() + "-" + sc.SpanID().String(); !strings.HasPrefix(got, want) {
		t.Errorf("traceparent is %q, want %s-…", got, want)
	}
}

// A nested run on another key is a separate call. Its events leave the span of the outer run
// unchanged.
func TestNestedRunsDoNotMeet(t *testing.T) {
	r := newRig(t, tracing.Options{})
	outer := r.Start(t.Context(), charge)
	r.Event(outer, event.Granted{Attempt: 1})
	inner := r.Start(outer, event.Acquisition{Kind: event.KindExclusive, Name: "account", Key: "account:1"})
	r.Event(inner, event.Granted{Attempt: 1})
	r.Event(inner, event.Lost{Cause: lockcore.ErrLost})
	r.Event(inner, event.Released{Lost: lockcore.ErrLost})
	r.Event(outer, event.Released{})
	in, out := r.span(t, "exclusive account"), r.span(t, "once charge")
	if in.Parent.SpanID() != out.SpanContext.SpanID() {
		t.Error("the inner run is not a child of the outer one")
	}
	if attrs(in)["holdfast.outcome"] != "lost" || attrs(out)["holdfast.outcome"] != "completed" || len(out.Events) != 0 {
		t.Errorf("inner: %v, outer: %v with events %v", attrs(in), attrs(out), out.Events)
	}
	r.addsUp(t)
}

// The kind of a share in telemetry is "shared" or "limited". A limited share also has its limit.
func TestSharesHaveTheirKind(t *testing.T) {
	r := newRig(t, tracing.Options{})
	for kind, limit := range map[string]int{"exclusive": 0, "shared": lockcore.Unlimited, "limited": 3} {
		ctx := r.Start(t.Context(), event.Acquisition{Kind: event.KindExclusive, Name: "partner", Key: "partner:1", Limit: limit})
		r.Event(ctx, event.Granted{Attempt: 1})
		r.Event(ctx, event.Released{})
		got := attrs(r.span(t, kind+" partner"))
		if n, ok := got["holdfast.limit"]; got["holdfast.kind"] != kind || ok != (kind == "limited") || ok && n != int64(3) {
			t.Errorf("%s: %v", kind, got)
		}
	}
	r.addsUp(t)
}

// Of two joined Observers each finds its own call.
func TestJoinedObserversKeepApart(t *testing.T) {
	a, b := newRig(t, tracing.Options{}), newRig(t, tracing.Options{})
	both := event.Join(a.Observer, b.Observer)
	ctx := both.Start(t.Context(), charge)
	both.Event(ctx, event.Granted{})
	both.Event(ctx, event.Released{})
	a.span(t, "once charge")
	b.span(t, "once charge")
	a.addsUp(t)
	b.addsUp(t)
}

func TestOnlyExposeRawKeysShowsTheKey(t *testing.T) {
	for _, expose := range []bool{false, true} {
		r := newRig(t, tracing.Options{ExposeRawKeys: expose})
		for _, tt := range outcomes {
			ctx := r.Start(t.Context(), charge)
			for _, e := range tt.events {
				r.Event(ctx, e)
			}
		}
		r.Event(t.Context(), parkedTask(charge.Key, 1, time.Second, time.Minute))
		r.Event(t.Context(), unparkedTask(charge.Key, 1, time.Second))
		if got := strings.Contains(r.exported(t), charge.Key); got != expose {
			t.Errorf("ExposeRawKeys %v: the key is exported: %v", expose, got)
		}
		if strings.Contains(r.exported(t), "10.0.0.7") {
			t.Error("the text of an error is exported")
		}
	}
}
