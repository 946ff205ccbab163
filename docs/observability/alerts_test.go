package observability_test

import (
	"regexp"
	"strings"
	"testing"
)

// rule is an alert of alerts.yaml. The file is simple enough to be parsed without a YAML library.
type rule struct{ name, expr, wait, severity, summary, description, runbook string }

func rules(t *testing.T) []rule {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "alerts.yaml"), "    rules:\n")
	var found []rule
	for _, part := range strings.Split(text, "      - alert: ")[1:] {
		name, _, _ := strings.Cut(part, "\n")
		field := func(name string) string {
			m := regexp.MustCompile(`(?m)^ +` + name + `: (.*(?:\n {10,}[^\n]*)*)`).FindStringSubmatch(part)
			if m == nil {
				return ""
			}
			value, _, _ := strings.Cut(m[1], "\n          runbook_url") // the text after a block of the same depth
			return strings.Join(strings.Fields(strings.TrimLeft(value, "|>- ")), " ")
		}
		r := rule{name: name, expr: field("expr"), wait: field("for"), severity: field("severity"), description: field("description")}
		r.summary, _, _ = strings.Cut(field("summary"), " description:")
		r.runbook = field("runbook_url")
		found = append(found, r)
	}
	return found
}

// Every alert queries metrics that are emitted, describes the consequence and the first step, and
// is on the page.
func TestAlerts(t *testing.T) {
	known, text := emitted(t), read(t, page)
	all := rules(t)
	if len(all) < 12 || len(all) != strings.Count(read(t, "alerts.yaml"), "- alert:") {
		t.Errorf("%d alerts found", len(all))
	}
	for _, r := range all {
		q := parse(r.expr, known)
		q.refer(r.summary + r.description)
		for _, wrong := range q.wrong {
			t.Errorf("%s: %s", r.name, wrong)
		}
		if !regexp.MustCompile(`^\d+m$`).MatchString(r.wait) || r.severity != "warning" && r.severity != "critical" || r.summary == "" {
			t.Errorf("%s: for %q, severity %q, summary %q", r.name, r.wait, r.severity, r.summary)
		}
		consequence, step, ok := strings.Cut(r.description, " First step")
		if !ok || len(consequence) < 20 || len(step) < 20 {
			t.Errorf("%s: description %q does not say the consequence and the first step", r.name, r.description)
		}
		if !strings.Contains(text, "\n### "+r.name+"\n") || !strings.HasSuffix(r.runbook, "/docs/operate.md#"+strings.ToLower(r.name)) {
			t.Errorf("%s: not on the page, or the link to it is wrong: %s", r.name, r.runbook)
		}
	}
	for _, h := range regexp.MustCompile(`(?m)^### (Holdfast\w+)$`).FindAllStringSubmatch(text, -1) {
		if !strings.Contains(read(t, "alerts.yaml"), "- alert: "+h[1]+"\n") {
			t.Errorf("%s is on the page, but no alert", h[1])
		}
	}
}
