package observability_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every Go block of the page is in code that is compiled and run by a test, apart from white space.
func TestCode(t *testing.T) {
	code := squeeze(read(t, "walk_test.go")) + squeeze(read(t, "../../examples/observability/telemetry.go"))
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(read(t, "README.md"), -1)
	for _, b := range blocks {
		if !strings.Contains(code, squeeze(b[1])) {
			t.Errorf("this block is in no tested file:\n%s", b[1])
		}
	}
	if len(blocks) < 4 {
		t.Errorf("only %d blocks found", len(blocks))
	}
}

// Every link inside the repository has a file or a heading of the page as its target.
func TestLinks(t *testing.T) {
	page := regexp.MustCompile("(?s)```.*?```").ReplaceAllString(read(t, "README.md"), "")
	headings := " "
	for _, h := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(page, -1) {
		headings += strings.ReplaceAll(regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-") + " "
	}
	for _, l := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(page, -1) {
		if heading, ok := strings.CutPrefix(l[1], "#"); ok {
			if !strings.Contains(headings, " "+heading+" ") {
				t.Errorf("no heading %s", l[1])
			}
		} else if _, err := os.Stat(strings.SplitN(l[1], "#", 2)[0]); err != nil && !strings.Contains(l[1], "://") {
			t.Errorf("%s leads nowhere", l[1])
		}
	}
}

// The table has exactly the metrics that are emitted, with their names, types, units and labels.
func TestTableOfMetrics(t *testing.T) {
	known := map[string]metric{}
	for _, m := range emitted(t) {
		known[m.otel] = m
	}
	row := regexp.MustCompile("(?m)^\\| `(holdfast\\.[a-z_.]+)` \\| `(holdfast_[a-z_]+)` \\| ([a-z -]+) \\| (\\S+) \\| ([a-z, ]*?) ?\\| .+ \\|$")
	for _, r := range row.FindAllStringSubmatch(read(t, "README.md"), -1) {
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
		said := strings.FieldsFunc(r[5], func(c rune) bool { return c == ',' || c == ' ' })
		slices.Sort(labels)
		slices.Sort(said)
		if r[2] != m.prom || r[3] != m.kind || r[4] != m.unit || !slices.Equal(said, labels) {
			t.Errorf("%q: it is %s, %s, %s with labels %q", r[0], m.prom, m.kind, m.unit, labels)
		}
	}
	for name := range known {
		t.Errorf("%s is not in the table", name)
	}
}

// The page lists exactly the values that labels have, and its queries name metrics that are
// emitted.
func TestValuesAndQueries(t *testing.T) {
	known, page := emitted(t), read(t, "README.md")
	values := map[string][]string{}
	for _, m := range known {
		for label, vs := range m.labels {
			values[label] = append(values[label], vs...)
		}
	}
	for _, label := range []string{"kind", "outcome", "cause", "result", "again"} {
		list := regexp.MustCompile(`(?m)^\| ` + label + " \\| (`.*`) \\|$").FindStringSubmatch(page)
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
	for _, q := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(page, -1) {
		for _, wrong := range parse(q[1], known).wrong {
			t.Errorf("%s: %s", q[1], wrong)
		}
	}
	for _, name := range regexp.MustCompile(`\bholdfast_[a-z_]+[a-z]\b`).FindAllString(page, -1) {
		_, bucket := known[name+"_bucket"]
		if _, ok := known[name]; !ok && !bucket && values[name] == nil {
			t.Errorf("%s is not emitted", name)
		}
	}
}

// Every attribute and event of spans that the page names is in the documentation of package
// tracing.
func TestNamesOfSpans(t *testing.T) {
	page, known := read(t, "README.md"), read(t, "../../tracing/doc.go")
	for _, name := range regexp.MustCompile(`\bholdfast\.[a-z_.]+[a-z]\b`).FindAllString(page, -1) {
		if !strings.Contains(known, "\t"+name+" ") && !strings.Contains(known, `"`+name+`"`) {
			t.Errorf("%s is not known", name)
		}
	}
	for _, m := range regexp.MustCompile("event `([a-z_.]+)`").FindAllStringSubmatch(page, -1) {
		if !strings.Contains(squeeze(strings.ReplaceAll(known, "//", "")), `"`+m[1]+`"`) {
			t.Errorf("there is no event %q", m[1])
		}
	}
}

// squeeze replaces each run of white space by one space.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
