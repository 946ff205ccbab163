package observability_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The table has exactly the metrics that are emitted, with their names, types and labels.
func TestTableOfMetrics(t *testing.T) {
	known := map[string]metric{}
	for _, m := range emitted(t) {
		known[m.otel] = m
	}
	row := regexp.MustCompile("(?m)^\\| `(holdfast\\.[a-z_.]+)` \\| `(holdfast_[a-z_]+)` \\| ([a-z -]+) \\| ([a-z, ]*?) ?\\| .+ \\|$")
	for _, r := range row.FindAllStringSubmatch(read(t, page), -1) {
		m, ok := known[r[1]]
		if !ok {
			t.Errorf("%s is not emitted, or twice in the table", r[1])
			continue
		}
		delete(known, r[1])
		var labels []string
		for l := range m.labels {
			labels = append(labels, strings.TrimPrefix(l, "holdfast_"))
		}
		said := strings.FieldsFunc(r[4], func(c rune) bool { return c == ',' || c == ' ' })
		slices.Sort(labels)
		slices.Sort(said)
		if r[2] != m.prom || r[3] != m.kind || !slices.Equal(said, labels) {
			t.Errorf("%q: it is %s, %s with labels %q", r[0], m.prom, m.kind, labels)
		}
	}
	for name := range known {
		t.Errorf("%s is not in the table", name)
	}
}

// The page lists exactly the values that labels have, and its queries name metrics that are
// emitted.
func TestValuesAndQueries(t *testing.T) {
	known, text := emitted(t), read(t, page)
	values := map[string][]string{}
	for _, m := range known {
		for label, vs := range m.labels {
			values[label] = append(values[label], vs...)
		}
	}
	for _, label := range []string{"kind", "outcome", "cause", "result", "again"} {
		list := regexp.MustCompile(`(?m)^\| ` + label + " \\| (`.*`) \\|$").FindStringSubmatch(text)
		if list == nil {
			t.Fatalf("the values of %s are not listed", label)
		}
		said := strings.Split(strings.ReplaceAll(list[1], "`", ""), ", ")
		have := values["holdfast_"+label]
		slices.Sort(said)
		slices.Sort(have)
		if have = slices.Compact(have); !slices.Equal(said, have) {
			t.Errorf("%s has the values %q, the page says %q", label, have, said)
		}
	}
	for _, q := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(text, -1) {
		for _, wrong := range parse(q[1], known).wrong {
			t.Errorf("%s: %s", q[1], wrong)
		}
	}
	for _, name := range regexp.MustCompile(`\bholdfast_[a-z_]+[a-z]\b`).FindAllString(text, -1) {
		_, bucket := known[name+"_bucket"]
		if _, ok := known[name]; !ok && !bucket && values[name] == nil {
			t.Errorf("%s is not emitted", name)
		}
	}
}

// Every attribute and event of spans that the page names is in the documentation of package
// tracing.
func TestNamesOfSpans(t *testing.T) {
	text, known := read(t, page), read(t, "../../tracing/doc.go")
	for _, m := range emitted(t) {
		known += "\t" + m.otel + " "
	}
	for _, name := range regexp.MustCompile(`\bholdfast\.[a-z_.]+[a-z]\b`).FindAllString(text, -1) {
		if !strings.Contains(known, "\t"+name+" ") && !strings.Contains(known, `"`+name+`"`) {
			t.Errorf("%s is not known", name)
		}
	}
	for _, m := range regexp.MustCompile("event `([a-z_.]+)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(strings.Join(strings.Fields(strings.ReplaceAll(known, "//", "")), " "), `"`+m[1]+`"`) {
			t.Errorf("there is no event %q", m[1])
		}
	}
}
