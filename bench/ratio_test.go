package main

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// The interval contains the median and is narrower with more rounds. It contains the true median in
// at least 87 % of the runs.
func TestBootstrap(t *testing.T) {
	if i := bootstrap([]float64{1.5}); i != exactly(1.5) || i.String() != "1.50" {
		t.Errorf("one round: got %v", i)
	}
	random := rand.New(rand.NewPCG(3, 4))
	width := map[int]float64{}
	for _, n := range []int{6, 30} {
		contains := 0
		const runs = 300
		for range runs {
			vs := make([]float64, n)
			for j := range vs {
				vs[j] = 1 + random.NormFloat64()/10
			}
			i := bootstrap(vs)
			if i.Low > i.Median || i.Median > i.High {
				t.Fatalf("the median is outside: %v", i)
			}
			if i.Low <= 1 && 1 <= i.High {
				contains++
			}
			width[n] += i.High - i.Low
		}
		if share := float64(contains) / runs; share < 0.87 {
			t.Errorf("%d rounds: %.2f of the intervals contain the true median", n, share)
		}
	}
	if width[30] > width[6]*0.75 {
		t.Errorf("30 rounds have intervals of %v, 6 rounds of %v", width[30], width[6])
	}
}

// cellOf returns the median of cells with the given throughput of each round. A zero is a round
// that failed.
func cellOf(library string, ops ...float64) result {
	var rs []result
	for i, v := range ops {
		if v > 0 {
			rs = append(rs, result{Scenario: "seq", Library: library, OpsPerS: v, RedisCPUPerOp: 1, ClientCPUPerOp: 1e4 / v, round: i})
		}
	}
	return medianResult(rs)
}

// A ratio compares the figures of the same round, so a slow round of the machine does not change
// it. A round without a figure of both does not count.
func TestRatioByRound(t *testing.T) {
	rs := results{cellOf("redsync", 100, 900, 200, 0), cellOf(holdfastName, 200, 1800, 400, 9000)}
	got, ok := rs.over(rs[0], opsOf)
	if !ok || got != exactly(2) {
		t.Errorf("got %v, want 2", got)
	}
	if _, ok := rs.over(rs[1], opsOf); ok {
		t.Error("holdfast has a ratio to itself")
	}
	if _, ok := rs.over(result{}, opsOf); ok {
		t.Error("a cell that was not measured has a ratio")
	}
	if got, ok := rs.over(rs[0], cpuOf); !ok || got.Median <= 0.5 || got.Median >= 1 {
		t.Errorf("CPU: got %v", got)
	}
}

// The table has the median with its interval, in the form of RESULTS.md.
func TestRatioInTable(t *testing.T) {
	rs := results{cellOf("redsync", 100, 100, 100, 100), cellOf(holdfastName, 98, 105, 105, 110)}
	s, _ := scenarioNamed("seq")
	sh := sheetOf(s, rs)
	if got := strings.Join(sh.rows[0], " | "); !strings.Contains(got, "| 1.05 [0.98, 1.10] |") {
		t.Errorf("got %s", got)
	}
	for _, want := range []string{"holdfast ÷ it", "CPU, holdfast ÷ it", "Redis µs/op", "client µs/op"} {
		if !strings.Contains(strings.Join(sh.head, "|"), want) {
			t.Errorf("no column %s in %v", want, sh.head)
		}
	}
}

// Each scenario that counts operations shows the CPU time per operation.
func TestCPUColumns(t *testing.T) {
	for _, s := range scenarios {
		head := strings.Join(sheetOf(s, nil).head, "|")
		if pairs := strings.Contains(head, "ops/s"); pairs != strings.Contains(head, "|Redis µs/op|client µs/op|") {
			t.Errorf("%s: %s", s.name, head)
		}
	}
}

// The JSON has the ratios, but no infinity, because JSON has no such number.
func TestRatioJSON(t *testing.T) {
	rs := results{cellOf("redsync", 100, 100), cellOf(holdfastName, 200, 200)}
	b, err := json.Marshal(rs.withRatios(rs[0]))
	if err != nil || !strings.Contains(string(b), `"holdfast_over_it":2,`) {
		t.Errorf("got %s, %v", b, err)
	}
	rs[0].rounds = []result{{RedisCPUPerOp: 0}}
	r := rs.withRatios(rs[0])
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
	if v, ok := r.Figures[opsRatio]; ok {
		t.Errorf("the ratio to 0 is %v", v)
	}
}

// The header has the load averages before and after the run.
func TestLoadAverages(t *testing.T) {
	e := environment{load: []string{"0.10 0.20 0.30", "1.10 0.40 0.35"}}
	if got := e.String(); !strings.HasSuffix(got, ", load averages 0.10 0.20 0.30 before and 1.10 0.40 0.35 after") {
		t.Errorf("got %s", got)
	}
	if got := (environment{}).String(); strings.Contains(got, "load") {
		t.Errorf("without load averages: got %s", got)
	}
}

func TestIntervalText(t *testing.T) {
	for i, want := range map[interval]string{
		{1.05, 0.98, 1.1}:             "1.05 [0.98, 1.10]",
		{1234, 1000, 2000}:            "1,234 [1,000, 2,000]",
		exactly(3):                    "3.00",
		{math.Inf(1), 2, math.Inf(1)}: "∞ [2.00, ∞]",
	} {
		if got := i.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The verdict on a change uses the whole interval: not slower, slower, or not resolved. Without
// -before there is no such mark.
func TestChanges(t *testing.T) {
	before := cellOf(beforeName, 1e4, 1e4, 1e4, 1e4, 1e4, 1e4)
	for want, ops := range map[string][]float64{
		"met":          {1e4, 1e4, 1.1e4, 1e4, 1.1e4, 1e4},
		"not resolved": {1e4, 0.7e4, 0.7e4, 1e4, 1e4, 0.7e4},
		"missed":       {0.7e4, 0.7e4, 0.7e4, 0.7e4, 0.7e4, 0.7e4},
	} {
		vs := judge(results{before, cellOf(holdfastName, ops...)})
		if v := vs[len(vs)-1]; !v.change || v.String() != want {
			t.Errorf("want %s, got %v of %v", want, v, v.value)
		}
	}
	for _, v := range judge(results{cellOf(holdfastName, 1e4)}) {
		if v.change {
			t.Errorf("without -before: %+v", v)
		}
	}
}
