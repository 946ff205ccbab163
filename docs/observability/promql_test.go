package observability_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ofScrape has the labels that Prometheus adds to every series.
var ofScrape = []string{"job", "instance"}

var (
	selector  = regexp.MustCompile(`\b(holdfast_[a-z_]+)\b(?:\{([^}]*)\})?`)
	matcher   = regexp.MustCompile(`([a-z_]+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	grouping  = regexp.MustCompile(`\bby \(([^)]*)\)`)
	reference = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?([a-z_]+)\s*\}\}`) // in a legend or an annotation
)

// query is a PromQL expression that was checked.
type query struct {
	metrics []metric
	by      []string // the labels of the result
	wrong   []string // the mistakes: names that no code emits
}

func parse(expr string, known map[string]metric) *query {
	q := &query{}
	for _, s := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
		m, ok := known[s[1]]
		if !ok {
			q.mistake("%s is not emitted", s[1])
			continue
		}
		q.metrics = append(q.metrics, m)
		for _, x := range matcher.FindAllStringSubmatch(s[2], -1) {
			q.match(m, x[1], x[2], x[3])
		}
	}
	if len(q.metrics) == 0 {
		q.mistake("there is no metric in it")
	}
	for _, g := range grouping.FindAllStringSubmatch(expr, -1) {
		for label := range strings.SplitSeq(strings.ReplaceAll(g[1], " ", ""), ",") {
			q.by = append(q.by, label)
			for _, m := range q.metrics {
				if !has(m, label) {
					q.mistake("%s has no label %s to group by", m.prom, label)
				}
			}
		}
	}
	return q
}

func (q *query) mistake(format string, args ...any) {
	q.wrong = append(q.wrong, fmt.Sprintf(format, args...))
}

// match checks one matcher. A value that begins with $ is a variable of the dashboard.
func (q *query) match(m metric, label, op, value string) {
	if !has(m, label) {
		q.mistake("%s has no label %s", m.prom, label)
		return
	}
	values := []string{value}
	if strings.HasSuffix(op, "~") {
		values = strings.Split(value, "|")
	}
	for _, v := range values {
		if m.labels[label] != nil && !strings.HasPrefix(v, "$") && !slices.Contains(m.labels[label], v) {
			q.mistake("%s never has %s=%q, only %q", m.prom, label, v, m.labels[label])
		}
	}
}

// refer checks each {{label}} in a text about the result.
func (q *query) refer(text string) {
	for _, r := range reference.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(q.by, r[1]) {
			q.mistake("{{%s}} is not among the labels of the result, %q", r[1], q.by)
		}
	}
}

func has(m metric, label string) bool {
	return m.labels[label] != nil || slices.Contains(ofScrape, label) || label == "le" && m.kind == "histogram"
}

// The checks of queries, which the tests of the dashboard and the alerts use, find mistakes.
func TestMistakesInQueriesAreFound(t *testing.T) {
	x := metric{prom: "holdfast_x_total", labels: map[string][]string{"holdfast_name": {"a"}}}
	y := metric{prom: "holdfast_y_seconds", kind: "histogram", labels: map[string][]string{}}
	known := map[string]metric{"holdfast_x_total": x, "holdfast_y_seconds_bucket": y}
	for text, mistakes := range map[string]int{ // from an expression and, after a semicolon, its legend, to the number of mistakes
		`sum by (job, holdfast_name) (rate(holdfast_x_total{job="j", holdfast_name=~"$name"}[5m])); {{holdfast_name}}`: 0,
		`histogram_quantile(0.5, sum by (le) (rate(holdfast_y_seconds_bucket[5m])))`:                                   0,
		`holdfast_x + holdfast_x_total`:             1,
		`holdfast_y_seconds_sum + holdfast_x_total`: 1,
		`up`:                                            1,
		`holdfast_x_total{holdfast_kind="once"}`:        1,
		`holdfast_x_total{holdfast_name="b"}`:           1,
		`holdfast_x_total{holdfast_name!="b"}`:          1,
		`holdfast_x_total{holdfast_name=~"a|b|c"}`:      2,
		`sum by (holdfast_kind) (holdfast_x_total)`:     1,
		`sum by (le) (holdfast_x_total)`:                1,
		`sum by (job) (holdfast_x_total); {{instance}}`: 1,
	} {
		expr, legend, _ := strings.Cut(text, ";")
		q := parse(expr, known)
		q.refer(legend)
		if len(q.wrong) != mistakes {
			t.Errorf("%s: %q, want %d mistakes", text, q.wrong, mistakes)
		}
	}
}
