package main

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// cells is a small run in which holdfast is fast under contention and slow without it.
func cells() results {
	cell := func(scenario, library string, ops, p99 float64) result {
		return result{Scenario: scenario, Library: library, OpsPerS: ops, P50US: p99 / 2, P99US: p99, MaxUS: p99, Shares: []int64{1}, Figures: figures{}}
	}
	return results{
		cell("seq", floorName, 10_000, 200), cell("seq", "redsync", 8_000, 300), cell("seq", holdfastName, 9_500, 250),
		cell("hot", "redsync", 1_000, 100_000), cell("hot", "redislock", 500, 40_000), cell("hot", holdfastName, 19_000, 900),
	}
}

func TestMarks(t *testing.T) {
	want := map[string]string{
		"≥ 0.9 × floor":              "met",
		"ahead of every library":     "met",
		"≥ 20 × best library":        "missed", // 19 times the fastest library
		"≥ 0.5 × the model":          "not measured",
		"p99 ≤ 1/40 of the best p99": "met", // 0.0225 of the library with the shortest waits
	}
	vs := judge(cells())
	if len(vs) != len(want) {
		t.Errorf("%d verdicts, want those of the scenarios that ran: %d", len(vs), len(want))
	}
	for _, v := range vs {
		if v.String() != want[v.mark.text] {
			t.Errorf("%s %s: %v is %q, want %q", v.mark.scenario, v.mark.text, v.value, v, want[v.mark.text])
		}
	}
}

// A mark without its figure is neither met nor missed.
func TestMarksNotMeasured(t *testing.T) {
	for _, v := range judge(results{{Scenario: "hold", Point: "lease by README", Library: holdfastName, Figures: figures{}}}) {
		if v.String() != "not measured" {
			t.Errorf("%s: %q", v.mark.text, v)
		}
	}
}

// Each mark names an existing scenario and an existing point.
func TestMarksNameScenarios(t *testing.T) {
	var all results
	for _, s := range scenarios {
		for _, p := range s.points {
			for _, l := range libraries {
				all = append(all, result{Scenario: s.name, Point: p.Name, Library: l.name, OpsPerS: 1, P99US: 1, RedisCPUPerOp: 1, Shares: []int64{1}, Figures: figures{
					tripsPerOp: 1, insideUS: 1, writerP99US: 1, goroutinesPerLease: 1, bytesPerLease: 1, tripsPerLeaseS: 1, longestPassMS: 1,
					renewalsSeen: 1, cmdsPerProcessS: 1, bytesPerWaiter: 1,
					togetherS + worstOf: 1, grantedS + worstOf: 1, stuckS + worstOf: 1,
				}})
			}
		}
	}
	if vs := judge(all); len(vs) != len(marks)+len(changes) {
		t.Errorf("%d verdicts on %d marks and %d changes", len(vs), len(marks), len(changes))
	} else {
		for _, v := range vs {
			if !v.measured {
				t.Errorf("%s %s: not measured", v.mark.scenario, v.mark.text)
			}
		}
	}
}

// The median is computed for each figure separately. Violations and unserved workers are added up.
func TestMedianResult(t *testing.T) {
	m := medianResult([]result{
		{OpsPerS: 30, P99US: 1, Violations: 1, Shares: []int64{30}, Figures: figures{"x": 1}},
		{OpsPerS: 10, P99US: 3, Unserved: 2, Shares: []int64{10}, Figures: figures{"x": 2}},
		{OpsPerS: 20, P99US: 2, Violations: 1, Shares: []int64{20}, Figures: figures{"x": 9}},
	})
	if m.OpsPerS != 20 || m.P99US != 2 || m.Figures["x"] != 2 || m.Shares[0] != 20 || m.Violations != 2 || m.Unserved != 2 {
		t.Errorf("got %+v", m)
	}
}

// A violation of holdfast or of the floor is an error. A violation of a peer is only shown.
func TestViolated(t *testing.T) {
	if err := (results{{Library: "redsync", Violations: 1}, {Library: holdfastName}}).violated(); err != nil {
		t.Errorf("a violation of a peer: %v", err)
	}
	for _, name := range []string{floorName, holdfastName, tracedName} {
		if err := (results{{Library: name, Violations: 1}}).violated(); !errors.Is(err, errViolated) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// The additional figures of a scenario are in the same JSON object.
func TestResultJSON(t *testing.T) {
	b, err := json.Marshal(result{Scenario: "hold", Shares: []int64{1}, Figures: figures{bytesPerLease: 2}})
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]any
	if err := json.Unmarshal(b, &keys); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"scenario", "library", "ops_per_s", "p50_us", "p99_us", "max_us", "redis_cmds_per_op", "redis_cpu_us_per_op",
		"client_cpu_us_per_op", "allocs_per_op", "unserved", "violations", "shares", bytesPerLease,
	} {
		if _, ok := keys[key]; !ok {
			t.Errorf("no %s in %s", key, b)
		}
	}
}

// The Markdown has the settings, the tables, and the figures in which other libraries are ahead.
// Each row has as many cells as its head.
func TestMarkdown(t *testing.T) {
	o := options{scenarios: scenarios, window: time.Second, rounds: 1}
	r := report{options: o, cells: cells(), environment: newEnvironment("7.0.15")}
	md := r.markdown()
	for _, want := range []string{"| redsync |", "## hot: ", "| hot | ≥ 20 × best library | 19.0 | missed |", "- seq, floor: µs per operation 100 against 105, p50 in µs 100 against 125"} {
		if !strings.Contains(md, want) {
			t.Errorf("no %q in\n%s", want, md)
		}
	}
	columns := 0
	for line := range strings.Lines(md) {
		n := strings.Count(line, "|")
		if columns > 0 && n > 0 && n != columns {
			t.Errorf("%d bars, want %d: %s", n, columns, line)
		}
		columns = n
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0049: "0.0049", 0.00003: "0.00003", 1e-9: "< 0.00001", math.Inf(1): "∞", 0.254: "0.25", 9.87: "9.87", 12.34: "12.3", 999.6: "1,000", 1234567: "1,234,567"} {
		if got := number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	if got := micros(1234.5); got != "1.23ms" {
		t.Errorf("got %s", got)
	}
	if !math.IsNaN(named("none")(result{})) {
		t.Error("a missing figure is a number")
	}
}
