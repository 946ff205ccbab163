// Package observability_test checks the dashboard, the alerts and docs/operate.md: they name exactly
// the metrics that the code emits.
package observability_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

const page = "../operate.md"

// metric is an instrument with its name in Prometheus.
type metric struct {
	otel   string // the name in OpenTelemetry
	prom   string // the name in Prometheus; for a histogram without _bucket, _sum and _count
	kind   string
	unit   string
	labels map[string][]string // from the name in Prometheus to the values that were emitted
}

// names returns the names of the series of m.
func (m metric) names() []string {
	if m.kind == "histogram" {
		return []string{m.prom + "_bucket", m.prom + "_sum", m.prom + "_count"}
	}
	return []string{m.prom}
}

// translated applies the rules of the OpenTelemetry Prometheus exporter and of Prometheus's OTLP
// receiver, as far as they are needed here. The test of examples/observability compares the names
// on the page, which follow these rules, with a real scrape.
func translated(m metricdata.Metrics) metric {
	p := metric{otel: m.Name, unit: m.Unit, prom: strings.ReplaceAll(m.Name, ".", "_"), labels: map[string][]string{}}
	switch m.Unit {
	case "s":
		p.prom += "_seconds"
	default: // {call}: text in braces is not part of the name
	}
	see := func(s attribute.Set) {
		for _, kv := range s.ToSlice() {
			name := strings.ReplaceAll(string(kv.Key), ".", "_")
			if v := kv.Value.AsString(); !slices.Contains(p.labels[name], v) {
				p.labels[name] = append(p.labels[name], v)
			}
		}
	}
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		p.kind = "up-down counter"
		if d.IsMonotonic {
			p.kind, p.prom = "counter", p.prom+"_total"
		}
		for _, x := range d.DataPoints {
			if x.Value != 0 || !d.IsMonotonic { // a counter starts at 0 before its first event
				see(x.Attributes)
			}
		}
	case metricdata.Gauge[int64]:
		p.kind = "gauge"
		for _, x := range d.DataPoints {
			see(x.Attributes)
		}
	case metricdata.Gauge[float64]:
		p.kind = "gauge"
		for _, x := range d.DataPoints {
			see(x.Attributes)
		}
	case metricdata.Histogram[int64]:
		p.kind = "histogram"
		for _, x := range d.DataPoints {
			see(x.Attributes)
		}
	case metricdata.Histogram[float64]:
		p.kind = "histogram"
		for _, x := range d.DataPoints {
			see(x.Attributes)
		}
	}
	return p
}

// emitted returns the metrics that the code emits, by the names of their series.
func emitted(t *testing.T) map[string]metric {
	t.Helper()
	found := map[string]metric{}
	for _, s := range provoke(t).ScopeMetrics {
		for _, m := range s.Metrics {
			p := translated(m)
			if p.kind == "" || p.unit != "s" && !strings.HasPrefix(p.unit, "{") {
				t.Errorf("%s is a %T in %q: there is no rule for its name here", m.Name, m.Data, m.Unit)
			}
			for _, name := range p.names() {
				found[name] = p
			}
		}
	}
	return found
}

// The scene causes every outcome and cause in the documentation of package tracing, and emits every
// metric that the package makes. Otherwise the other tests here would check too little.
func TestSceneIsComplete(t *testing.T) {
	metrics := emitted(t)
	said := read(t, "../../tracing/doc.go")
	_, outcomes, _ := strings.Cut(said, "# Outcomes")
	outcomes, _, _ = strings.Cut(outcomes, "# Metrics")
	for _, m := range regexp.MustCompile(`(?m)^//\t([a-z_]+)  `).FindAllStringSubmatch(outcomes, -1) {
		if !slices.Contains(metrics["holdfast_acquisitions_total"].labels["holdfast_outcome"], m[1]) {
			t.Errorf("no call had the outcome %q", m[1])
		}
	}
	causes := regexp.MustCompile(`why the lease was lost: ([a-z_, ]+);`).FindStringSubmatch(said)
	if causes == nil {
		t.Fatal("the documentation does not list the causes")
	}
	for cause := range strings.SplitSeq(causes[1], ", ") {
		if !slices.Contains(metrics["holdfast_lease_lost_total"].labels["holdfast_cause"], cause) {
			t.Errorf("no lease was lost for the cause %q", cause)
		}
	}
	instruments := regexp.MustCompile(`(?:histogram|counter|Histogram|Counter|Gauge)\("(holdfast\.[a-z_.]+)"`).
		FindAllStringSubmatch(read(t, "../../tracing/instruments.go")+read(t, "../../tracing/parked.go"), -1)
	if len(instruments) < 20 {
		t.Errorf("only %d instruments found in package tracing", len(instruments))
	}
	for _, in := range instruments {
		if !slices.ContainsFunc(slices.Collect(maps.Values(metrics)), func(m metric) bool { return m.otel == in[1] }) {
			t.Errorf("%s was not emitted", in[1])
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
