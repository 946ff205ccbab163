package main

import (
	"context"
	"html/template"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const maxSpans = 1000

// ring keeps the last spans in memory and shows them, in place of an exporter and its web page.
type ring struct {
	mu    sync.Mutex
	spans []sdktrace.ReadOnlySpan
}

// ExportSpans keeps spans that have ended.
func (r *ring) ExportSpans(_ context.Context, spans []sdktrace.ReadOnlySpan) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, spans...)
	if n := len(r.spans) - maxSpans; n > 0 {
		r.spans = slices.Delete(r.spans, 0, n)
	}
	return nil
}

// Shutdown does nothing.
func (r *ring) Shutdown(context.Context) error { return nil }

// row is a span on the page.
type row struct {
	Start, Trace, ID, Parent, Name, Details string
	Took                                    time.Duration
	Links                                   []string // spans that it waited for
}

// ServeHTTP writes one line a span, the newest first. The span of a waiter has a link to the span
// of the holder.
func (r *ring) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	spans := slices.Clone(r.spans)
	r.mu.Unlock()
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return b.StartTime().Compare(a.StartTime()) })
	rows := make([]row, 0, len(spans))
	for _, s := range spans {
		rows = append(rows, rowOf(s))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = page.Execute(w, rows)
}

func rowOf(s sdktrace.ReadOnlySpan) row {
	var d []string
	for _, a := range s.Attributes() {
		d = append(d, strings.TrimPrefix(string(a.Key), "holdfast.")+"="+a.Value.String())
	}
	slices.Sort(d)
	for _, e := range s.Events() {
		d = append(d, "· "+e.Name)
	}
	r := row{
		Start: s.StartTime().Format("15:04:05.000"), Took: s.EndTime().Sub(s.StartTime()).Round(10 * time.Microsecond),
		Trace: s.SpanContext().TraceID().String(), ID: s.SpanContext().SpanID().String(), Name: s.Name(), Details: strings.Join(d, " "),
	}
	if s.Parent().IsValid() {
		r.Parent = s.Parent().SpanID().String()
	}
	for _, l := range s.Links() {
		r.Links = append(r.Links, l.SpanContext.SpanID().String())
	}
	return r
}

var page = template.Must(template.New("spans").Parse(`<!doctype html><title>spans</title>
<style>body{font:13px monospace} td{padding:2px 8px;vertical-align:top} tr:target{background:#fe8}</style>
<table><tr><th>start<th>took<th>trace<th>span<th>parent<th>waited for<th>name<th>attributes
{{range .}}<tr id="{{.ID}}"><td>{{.Start}}<td>{{.Took}}<td title="{{.Trace}}">{{slice .Trace 0 8}}<td>{{.ID}}<td>
{{- if .Parent}}<a href="#{{.Parent}}">{{.Parent}}</a>{{end}}<td>
{{- range .Links}}<a href="#{{.}}">{{.}}</a> {{end}}<td>{{.Name}}<td>{{.Details}}
{{end}}</table>
`))
