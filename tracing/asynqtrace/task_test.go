package asynqtrace_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/tracing/asynqtrace"
)

// The span of a task without trace context, or with a bad one, has no link, in particular none to
// itself.
func TestBadHeadersLinkToNothing(t *testing.T) {
	r := newRig()
	for name, headers := range map[string]map[string]string{
		"none":             nil,
		"others":           {"tenant": "acme"},
		"empty":            {"traceparent": ""},
		"garbage":          {"traceparent": "x\x00"},
		"short":            {"traceparent": parent[:54]},
		"upper case":       {"traceparent": strings.ToUpper(parent)},
		"version ff":       {"traceparent": "ff" + parent[2:]},
		"zero trace":       {"traceparent": "00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
		"zero span":        {"traceparent": parent[:36] + "0000000000000000-01"},
		"tracestate alone": {"tracestate": "vendor=1"},
		"huge":             {"traceparent": strings.Repeat(parent, 10000)},
	} {
		t.Run(name, func(t *testing.T) {
			if s := r.deliver(t, asynq.NewTaskWithHeaders("charge", nil, headers), nothing); len(s.Links) != 0 {
				t.Errorf("links %v", s.Links)
			}
		})
	}
}

// A bad tracestate does not prevent the link. A good one is part of the link.
func TestTracestate(t *testing.T) {
	r := newRig()
	for state, want := range map[string]string{"vendor=1": "vendor=1", "=": "", strings.Repeat("x", 1000): ""} {
		s := r.deliver(t, asynq.NewTaskWithHeaders("charge", nil, map[string]string{"traceparent": parent, "tracestate": state}), nothing)
		if len(s.Links) != 1 || s.Links[0].SpanContext.TraceState().String() != want {
			t.Errorf("tracestate %.10q: links %v, want one with %q", state, s.Links, want)
		}
	}
}

// NewTaskWithHeaders keeps type, payload and headers, adds the trace context, and does not modify
// the map of the caller.
func TestNewTask(t *testing.T) {
	r := newRig()
	ctx, from := r.producer(t.Context())
	mine := map[string]string{"tenant": "acme", "traceparent": parent, "tracestate": "old=1"}
	before := maps.Clone(mine)
	task := asynqtrace.NewTaskWithHeaders(ctx, "charge", []byte("7"), mine)
	want := "00-" + from.TraceID().String() + "-" + from.SpanID().String() + "-01"
	if h := task.Headers(); h["tenant"] != "acme" || h["traceparent"] != want || h["tracestate"] != "" {
		t.Errorf("headers %v", h)
	}
	if !maps.Equal(mine, before) {
		t.Errorf("the caller's map is now %v", mine)
	}
	if task.Type() != "charge" || string(task.Payload()) != "7" {
		t.Errorf("task %q %q", task.Type(), task.Payload())
	}
	if h := asynqtrace.NewTask(ctx, "charge", nil).Headers(); len(h) != 1 || h["traceparent"] != want {
		t.Errorf("headers %v", h)
	}
}

// Without a span in ctx nothing is added, and trace context among the headers stays.
func TestNewTaskWithoutSpan(t *testing.T) {
	if h := asynqtrace.NewTask(t.Context(), "charge", nil).Headers(); len(h) != 0 {
		t.Errorf("headers %v", h)
	}
	mine := map[string]string{"traceparent": parent, "tracestate": "old=1"}
	if h := asynqtrace.NewTaskWithHeaders(t.Context(), "charge", nil, mine).Headers(); !maps.Equal(h, mine) {
		t.Errorf("headers %v", h)
	}
	remote := trace.ContextWithSpanContext(t.Context(), trace.SpanContext{}) // not valid
	if h := asynqtrace.NewTask(remote, "charge", nil).Headers(); len(h) != 0 {
		t.Errorf("headers %v", h)
	}
}
