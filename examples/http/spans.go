package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

const maxSpans = 50

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
	r.spans = slices.Clone(r.spans[max(0, len(r.spans)-maxSpans):])
	return nil
}

// Shutdown does nothing.
func (r *ring) Shutdown(context.Context) error { return nil }

// ServeHTTP writes one line a span, the newest first.
func (r *ring) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	spans := slices.Clone(r.spans)
	r.mu.Unlock()
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int {
		return cmp.Or(b.StartTime().Compare(a.StartTime()), strings.Compare(a.Name(), b.Name()))
	})
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "start\ttook\tspan\tparent\tname\tattributes")
	for _, s := range spans {
		_, _ = fmt.Fprintf(t, "%s\t%v\t%s\t%s\t%s\t%s\n",
			s.StartTime().Format("15:04:05.000"), s.EndTime().Sub(s.StartTime()).Round(10*time.Microsecond),
			s.SpanContext().SpanID(), s.Parent().SpanID(), s.Name(), details(s))
	}
	_ = t.Flush()
}

func details(s sdktrace.ReadOnlySpan) string {
	var d []string
	for _, a := range s.Attributes() {
		d = append(d, strings.TrimPrefix(string(a.Key), "holdfast.")+"="+a.Value.String())
	}
	slices.Sort(d)
	for _, l := range s.Links() {
		d = append(d, "waited for span "+l.SpanContext.SpanID().String())
	}
	return strings.Join(d, " ")
}
