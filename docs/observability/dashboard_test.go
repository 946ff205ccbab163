package observability_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"
)

// dashboard has the parts of Grafana's format that the tests need.
type dashboard struct {
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ Type, UID string }
	FieldConfig              struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ Expr, LegendFormat string }
}

func loadDashboard(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Every metric that the dashboard queries is emitted, and every metric that is emitted is on the
// dashboard.
func TestDashboardShowsWhatIsEmitted(t *testing.T) {
	known, d := emitted(t), loadDashboard(t)
	var shown []string
	look := func(where, expr, legend string) {
		q := parse(expr, known)
		q.refer(legend)
		for _, wrong := range q.wrong {
			t.Errorf("%s: %s", where, wrong)
		}
		for _, m := range q.metrics {
			shown = append(shown, m.otel)
		}
	}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			look(p.Title, target.Expr, target.LegendFormat)
		}
	}
	for _, m := range known {
		if !slices.Contains(shown, m.otel) {
			t.Errorf("%s is on no panel", m.otel)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
			if m == nil {
				t.Fatalf("variable %s is %q", v.Name, v.Definition)
			}
			look("variable "+v.Name, "sum by ("+m[2]+") ("+m[1]+")", "")
		}
	}
}

// The dashboard can be imported into any Grafana: it has a variable for the data source. Every
// panel has a unit, a description and a query, and no two overlap.
func TestDashboardIsComplete(t *testing.T) {
	d := loadDashboard(t)
	if d.UID == "" || d.SchemaVersion < 39 {
		t.Errorf("uid %q, schemaVersion %d", d.UID, d.SchemaVersion)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name+" "+v.Type)
	}
	for _, v := range []string{"datasource datasource", "name query", "job query"} {
		if !slices.Contains(variables, v) {
			t.Errorf("no variable %s in %q", v, variables)
		}
	}
	ids := map[int]string{}
	for i, p := range d.Panels {
		if other, twice := ids[p.ID]; twice {
			t.Errorf("%s and %s have the same id", p.Title, other)
		}
		ids[p.ID] = p.Title
		for _, o := range d.Panels[:i] {
			a, b := p.GridPos, o.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies over %s", p.Title, o.Title)
			}
		}
		if p.Type == "row" {
			continue
		}
		if p.Datasource.UID != "${datasource}" || p.FieldConfig.Defaults.Unit == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: data source %q, unit %q, description %q, %d queries",
				p.Title, p.Datasource.UID, p.FieldConfig.Defaults.Unit, p.Description, len(p.Targets))
		}
	}
}
