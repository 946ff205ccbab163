package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// result is one cell: the figures of one library at one point of a scenario. They are those of one
// run, or the medians of several.
type result struct {
	Scenario       string  `json:"scenario"`
	Point          string  `json:"point,omitempty"`
	Library        string  `json:"library"`
	OpsPerS        float64 `json:"ops_per_s"`
	P50US          float64 `json:"p50_us"`
	P99US          float64 `json:"p99_us"`
	MaxUS          float64 `json:"max_us"`
	CmdsPerOp      float64 `json:"redis_cmds_per_op"`
	RedisCPUPerOp  float64 `json:"redis_cpu_us_per_op"`
	ClientCPUPerOp float64 `json:"client_cpu_us_per_op"`
	AllocsPerOp    float64 `json:"allocs_per_op"`
	Unserved       int64   `json:"unserved"`
	Violations     int64   `json:"violations"`
	Shares         []int64 `json:"shares"` // operations of each process
	Said           string  `json:"said,omitempty"`

	Figures figures `json:"-"` // part of the same JSON object

	round  int      // the number of the round
	rounds []result // of a median: the runs that it was computed from
}

// newResult combines the outcomes of the processes of a run.
func newResult(scenario string, p point, library string, outcomes []*outcome, redisCPU time.Duration) result {
	r := result{Scenario: scenario, Point: p.Name, Library: library, Figures: figures{}}
	var all outcome
	for _, o := range outcomes {
		r.OpsPerS += float64(o.Ops) / o.Window.Seconds()
		r.Shares = append(r.Shares, o.Ops)
		r.Unserved += o.Unserved
		r.Violations += o.Violations
		all.Ops += o.Ops
		all.Errors += o.Errors
		all.Commands += o.Commands
		all.Trips += o.Trips
		all.CPU += o.CPU
		all.Mallocs += o.Mallocs
		all.Inside += o.Inside
		all.Waits.merge(o.Waits)
		maps.Copy(r.Figures, o.Extra)
		r.Said = o.Said
	}
	r.P50US, r.P99US, r.MaxUS = us(all.Waits.quantile(0.5)), us(all.Waits.quantile(0.99)), us(all.Waits.Max)
	if all.Ops > 0 {
		ops := float64(all.Ops)
		r.CmdsPerOp, r.AllocsPerOp = float64(all.Commands)/ops, float64(all.Mallocs)/ops
		r.RedisCPUPerOp, r.ClientCPUPerOp = us(redisCPU)/ops, us(all.CPU)/ops
		r.Figures[tripsPerOp] = float64(all.Trips) / ops
		if p.Inside > 0 {
			r.Figures[insideUS] = us(all.Inside) / ops
		}
	}
	if all.Errors > 0 {
		r.Figures[failedCalls] = float64(all.Errors)
	}
	return r
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

// MarshalJSON adds the figures as separate keys.
func (r result) MarshalJSON() ([]byte, error) {
	type plain result
	b, err := json.Marshal(plain(r))
	if err != nil || len(r.Figures) == 0 {
		return b, err
	}
	more, err := json.Marshal(r.Figures)
	if err != nil {
		return nil, err
	}
	return append(append(b[:len(b)-1], ','), more[1:]...), nil
}

// medianResult returns the median of each figure separately. Violations are added up. Unserved is
// that of the worst round. The shares are those of the round with the median throughput.
func medianResult(rounds []result) result {
	byOps := slices.Clone(rounds)
	slices.SortFunc(byOps, func(a, b result) int { return int(a.OpsPerS - b.OpsPerS) })
	m := byOps[len(byOps)/2]
	m.rounds = rounds
	of := func(get func(result) float64) float64 { return median(rounds, get) }
	m.OpsPerS = of(opsOf)
	m.P50US = of(func(r result) float64 { return r.P50US })
	m.P99US = of(func(r result) float64 { return r.P99US })
	m.MaxUS = of(func(r result) float64 { return r.MaxUS })
	m.CmdsPerOp = of(func(r result) float64 { return r.CmdsPerOp })
	m.RedisCPUPerOp = of(func(r result) float64 { return r.RedisCPUPerOp })
	m.ClientCPUPerOp = of(func(r result) float64 { return r.ClientCPUPerOp })
	m.AllocsPerOp = of(func(r result) float64 { return r.AllocsPerOp })
	all := figures{}
	m.Unserved, m.Violations = 0, 0
	for _, r := range rounds {
		m.Unserved = max(m.Unserved, r.Unserved)
		m.Violations += r.Violations
		for name := range r.Figures {
			all[name] = of(func(r result) float64 { return r.Figures[name] })
		}
	}
	m.Figures = all
	return m
}

func median(rounds []result, get func(result) float64) float64 {
	vs := make([]float64, 0, len(rounds))
	for _, r := range rounds {
		vs = append(vs, get(r))
	}
	return middle(vs)
}

// results are the cells of a whole run.
type results []result

// get returns the cell of a library at a point. ok is false if it was not measured.
func (rs results) get(scenario, point, library string) (r result, ok bool) {
	for _, r := range rs {
		if r.Scenario == scenario && r.Point == point && r.Library == library {
			return r, true
		}
	}
	return result{}, false
}

// peers returns the cells of the libraries of other projects.
func (rs results) peers(scenario, point string) results {
	var ps results
	for _, r := range rs {
		if l, ok := libraryNamed(r.Library); ok && l.peer && r.Scenario == scenario && r.Point == point {
			ps = append(ps, r)
		}
	}
	return ps
}

var errViolated = errors.New("bench: more sections than allowed were inside a key at the same time")

// violated returns an error for violations of holdfast or the floor. Violations of peers are only
// shown in the table.
func (rs results) violated() error {
	for _, r := range rs {
		if l, _ := libraryNamed(r.Library); r.Violations > 0 && !l.peer {
			return fmt.Errorf("%w: %s, %s", errViolated, r.Scenario, r.Library)
		}
	}
	return nil
}
