package main

import (
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"golang.org/x/perf/benchmath"
)

// cellOf returns a result with the given throughput of each round. A zero is a round that failed.
func cellOf(scenario, library string, speeds ...float64) result {
	var rs []result
	for _, v := range speeds {
		r := result{}
		if v > 0 {
			r = result{scenario: scenario, library: library, figures: figures{ops: v, p50: 1e5 / v, p99: 2e5 / v, allCPU: 1e4 / v, leastShare: 1}}
		}
		rs = append(rs, r)
	}
	return median(rs)
}

// cells is a small run in which holdfast is fast under contention and slow without it.
func cells() results {
	return results{
		cellOf("seq", floorName, 10_000), cellOf("seq", "redsync", 8_000), cellOf("seq", holdfastName, 9_500),
		cellOf("hot", "redsync", 1_000), cellOf("hot", "redislock", 500), cellOf("hot", holdfastName, 19_000),
	}
}

func TestMarks(t *testing.T) {
	want := map[string]string{
		"≥ 0.9 × floor":              "met",
		"ahead of every library":     "met",
		"≥ 20 × best library":        "missed", // 19 times the fastest library
		"p99 ≤ 1/40 of the best p99": "missed", // 1/19 of the library with the shortest waits
	}
	vs := judge(cells())
	if len(vs) != len(want) {
		t.Errorf("%d verdicts, want those that were measured: %d", len(vs), len(want))
	}
	for _, v := range vs {
		if v.String() != want[v.mark.text] {
			t.Errorf("%s, %s: %v is %q, want %q", v.mark.scenario, v.mark.text, v.value, v, want[v.mark.text])
		}
	}
}

// Each mark names an existing scenario, an existing point and figures that the scenario has.
func TestMarksNameScenarios(t *testing.T) {
	f := figures{}
	for _, name := range []string{
		ops, p99, leastShare, ofPossible, tripsPerGrant, goroutinesPerLease, bytesPerLease, commandsPerS, bytesPerWaiter, othersDone, hotDone, deliveries,
		commandsPerHot, notCompleted, togetherWorst, grantedWorst, stuckWorst, allCPU, lostTriggers, staleRuns, sideBySide, strayKeys,
	} {
		f[name] = 1
	}
	var all results
	for _, s := range scenarios {
		for _, c := range s.cells(options{before: "x"}) {
			all = append(all, result{scenario: s.name, point: c.point.Name, library: c.library, figures: f, rounds: []figures{f}})
		}
	}
	changes := 0
	for _, v := range judge(all) {
		if v.mark.text == noSlower {
			changes++
		}
	}
	if n := len(judge(all)) - changes; n != len(marks) || changes < 7 {
		t.Errorf("%d of %d marks, and %d for a change", n, len(marks), changes)
	}
}

// The verdict on a change uses the whole interval: not slower, slower, or not resolved.
func TestChanges(t *testing.T) {
	before := cellOf("seq", beforeName, 1e4, 1e4, 1e4, 1e4, 1e4, 1e4)
	for want, speeds := range map[string][]float64{
		"met":          {1e4, 1e4, 1.1e4, 1e4, 1.1e4, 1e4},
		"not resolved": {1e4, 0.7e4, 0.7e4, 1e4, 1e4, 0.7e4},
		"missed":       {0.7e4, 0.7e4, 0.7e4, 0.7e4, 0.7e4, 0.7e4},
	} {
		vs := judge(results{before, cellOf("seq", holdfastName, speeds...)})
		if v := vs[len(vs)-1]; v.mark.text != noSlower || v.String() != want {
			t.Errorf("want %s, got %v of %v", want, v, v.value)
		}
	}
}

// The median is computed for each figure separately. Violations are added up, and the number of
// unserved callers is the greatest one.
func TestMedian(t *testing.T) {
	m := median([]result{
		{scenario: "x", figures: figures{ops: 30, p99: 1, violations: 1}},
		{scenario: "x", figures: figures{ops: 10, p99: 3, unserved: 2}},
		{scenario: "x", figures: figures{ops: 20, p99: 2, violations: 1, unserved: 1}},
		{},
	})
	if want := (figures{ops: 20, p99: 2, violations: 2, unserved: 2}); !maps.Equal(m.figures, want) || len(m.rounds) != 4 || m.scenario != "x" {
		t.Errorf("got %+v", m)
	}
	if none := median([]result{{}, {}}); none.scenario != "" {
		t.Errorf("without a run: %+v", none)
	}
}

// A ratio compares the figures of the same round, so a slow round of the machine does not change it.
// A round without both figures is left out.
func TestRatioByRound(t *testing.T) {
	its, mine := cellOf("seq", "redsync", 100, 900, 200, 0), cellOf("seq", holdfastName, 200, 1800, 400, 9000)
	if s, ok := ratio(mine, its, ops); !ok || s.Center != 2 || interval(s) != "2" {
		t.Errorf("got %v", s)
	}
	if _, ok := ratio(mine, result{}, ops); ok {
		t.Error("a result that was not measured has a ratio")
	}
	t.Run("interval", func(t *testing.T) { // of six rounds: their range
		its, mine = cellOf("seq", "redsync", 100, 100, 100, 100, 100, 100), cellOf("seq", holdfastName, 98, 105, 104, 106, 105, 110)
		got := rows(lockKind, results{its, mine}, results{its, mine}).String()
		if !strings.Contains(got, "| 1.05 [0.98, 1.10] |") || !strings.Contains(got, "| –  ") {
			t.Errorf("got\n%s", got)
		}
	})
}

// A mistake of holdfast or of the floor is an error. A mistake of a peer is only in the tables. A
// round that shows nothing is an error for both.
func TestDoubt(t *testing.T) {
	for _, tt := range []struct {
		library, figure string
		want            error
	}{
		{"redsync+careful", violations, nil},
		{floorName, violations, errViolated},
		{quietName, violations, errViolated},
		{holdfastName, neverB, errNeverGranted},
		{"rueidislock", inconclusive, errInconclusive},
		{policies[2], archived, errTaskFailed},
	} {
		if err := (result{library: tt.library, figures: figures{tt.figure: 1}}).doubt(); !errors.Is(err, tt.want) {
			t.Errorf("%s, %s: %v", tt.library, tt.figure, err)
		}
	}
}

// The pages have all tables, and each row has as many cells as its head. A column without a figure is
// left out.
func TestPages(t *testing.T) {
	r := report{options: options{window: time.Second, rounds: 1}, environment: newEnvironment("7.0.15"), results: cells()}
	r.environment.load = []string{"0.10 0.20 0.30", "1.10 0.40 0.35"}
	r.results = append(r.results,
		result{scenario: "partition", library: holdfastName, figures: figures{togetherWorst: 0, grantedWorst: 3}},
		result{scenario: "lost-answer", point: "renew, cut", library: "redsync", figures: figures{togetherWorst: 2}, said: "kept"})
	checkTable(t, r.resultsPage(),
		", load averages 0.10 0.20 0.30 before and 1.10 0.40 0.35 after.", "- **redsync**: github.com/go-redsync/redsync/v4", "- **hot**: 64 goroutines",
		"holdfast met 2 of its 4 targets", "- hot, ≥ 20 × best library: 19, missed")
	checkTable(t, r.faultsPage(), "two at once 2.00", "| kept ", "met 2 of its 2 targets")
	if strings.Contains(r.resultsPage(), "| unserved | violations") || (report{}).resultsPage() != "" || (report{}).faultsPage() != "" {
		t.Error("an empty column or page")
	}
}

func checkTable(t *testing.T, md string, parts ...string) {
	t.Helper()
	for _, want := range parts {
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
	for v, want := range map[float64]string{0: "0", 16: "16", 0.0049: "0.0049", 0.00003: "0.00003", 1e-9: "< 0.00001", 0.254: "0.25", 9.87: "9.87", 12.34: "12.3", 999.6: "1,000", 1234567: "1,234,567"} {
		if got := number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
	if got := micros(1234.5); got != "1.23ms" {
		t.Errorf("got %s", got)
	}
	if got := brief(math.NaN()) + brief(0) + brief(-0.5) + brief(-0.001); got != "–0−0.50< 0.01" {
		t.Errorf("got %s", got)
	}
	if got := interval(benchmath.Summary{Center: 1234, Lo: 1000, Hi: 2000}) + interval(exactly(3)); got != "1,234 [1,000, 2,000]3" {
		t.Errorf("got %s", got)
	}
}
