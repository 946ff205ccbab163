package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/perf/benchmath"
)

// result has the figures of one library at one point of a scenario: those of one run, or the medians
// of several.
type result struct {
	scenario, point, library string

	figures figures
	said    string    // faults: the results of A's calls
	rounds  []figures // of a median: the figures of each round, nil for a run that failed
}

func (r result) where() string { return strings.TrimSpace(r.scenario + " " + r.point) }

// get returns a figure, or NaN if it was not measured.
func (r result) get(name string) float64 {
	if v, ok := r.figures[name]; ok {
		return v
	}
	return math.NaN()
}

// sumUp combines the outcomes of the processes of a run. redisTime is the CPU time of Redis.
func (r *result) sumUp(p point, outcomes []*outcome, redisTime time.Duration) {
	f := figures{}
	var all outcome
	var done []float64
	for _, o := range outcomes {
		f[ops] += float64(o.Ops) / o.Window.Seconds()
		f[unserved] += float64(o.Unserved)
		f[violations] += float64(o.Violations)
		all.Ops += o.Ops
		all.Commands += o.Commands
		all.CPU += o.CPU
		all.Inside += o.Inside
		all.Waits.merge(o.Waits)
		all.Gaps.merge(o.Gaps)
		maps.Copy(f, o.Extra)
		done = append(done, float64(o.Ops))
		r.said = o.Said
	}
	f[p50], f[p99] = us(all.Waits.quantile(0.5)), us(all.Waits.quantile(0.99))
	if p.Trip > 0 {
		f[tripsPerGrant] = float64(all.Gaps.quantile(0.5)) / float64(p.Trip)
	}
	if r := p.Rate; r.N > 0 && p.Name == atRate {
		perSecond := float64(r.N) / r.Per.Seconds()
		f[ofRate], f[perQueue] = f[ops]/perSecond, f[p99]/1e6/(float64(p.Workers)/perSecond)
	}
	if all.Ops > 0 {
		n := float64(all.Ops)
		f[commands], f[redisCPU], f[clientCPU] = float64(all.Commands)/n, us(redisTime)/n, us(all.CPU)/n
		f[allCPU] = f[redisCPU] + f[clientCPU]
		f[ofPossible] = f[ops] * (all.Inside.Seconds() / n) / float64(max(p.Limit, 1))
		f[leastShare] = slices.Min(done) * float64(len(done)) / n
	}
	r.figures = f
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

// median combines the rounds of a cell. Each figure has its median, but violations are added up, and
// unserved is the one of the worst round.
func median(rounds []result) result {
	m := result{figures: figures{}}
	for _, r := range rounds {
		m.rounds = append(m.rounds, r.figures)
		if r.figures != nil {
			m.scenario, m.point, m.library, m.said = r.scenario, r.point, r.library, r.said
		}
		m.figures[violations] += r.figures[violations]
		m.figures[unserved] = max(m.figures[unserved], r.figures[unserved])
	}
	for _, r := range rounds {
		for name := range r.figures {
			if name == violations || name == unserved {
				continue
			}
			var vs []float64
			for _, one := range rounds {
				if v, ok := one.figures[name]; ok {
					vs = append(vs, v)
				}
			}
			m.figures[name] = summary(vs).Center
		}
	}
	return m
}

// summary returns the median of vs and its 95 % confidence interval. With fewer than six values, the
// interval is infinite.
func summary(vs []float64) benchmath.Summary {
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(slices.Clone(vs), &benchmath.DefaultThresholds), 0.95)
}

// exactly returns a figure without an interval.
func exactly(v float64) benchmath.Summary { return benchmath.Summary{Center: v, Lo: v, Hi: v} }

// ratio divides a figure of mine by the same figure of its, separately for each round that measured
// both, because the runs of one round are close together in time. ok is false if no round has a
// ratio that is a number.
func ratio(mine, its result, name string) (s benchmath.Summary, ok bool) {
	var vs []float64
	for i := range min(len(mine.rounds), len(its.rounds)) {
		a, ok1 := mine.rounds[i][name]
		b, ok2 := its.rounds[i][name]
		if ok1 && ok2 && b != 0 {
			vs = append(vs, a/b)
		}
	}
	if len(vs) == 0 {
		return s, false
	}
	return summary(vs), true
}

// results are the medians of a whole run.
type results []result

// get returns the result of a library at a point. ok is false if it was not measured.
func (rs results) get(scenario, point, library string) (r result, ok bool) {
	for _, r := range rs {
		if r.scenario == scenario && r.point == point && r.library == library {
			return r, true
		}
	}
	return result{}, false
}

var (
	errViolated     = errors.New("bench: more sections than allowed were inside a key at the same time")
	errInconclusive = errors.New("bench: inconclusive")
	errNeverGranted = errors.New("bench: never granted")
	errTaskFailed   = errors.New("bench: a task was archived, or used up a retry")
)

// doubt returns an error if r shows a mistake of holdfast or of the floor, or if it shows nothing.
// Mistakes of peers are only in the tables.
func (r result) doubt() error {
	if n := r.figures[inconclusive]; n > 0 {
		return fmt.Errorf("%w: %s, %s: %v rounds: %s", errInconclusive, r.where(), r.library, n, r.said)
	}
	if l, _ := libraryNamed(r.library); l.peer {
		return nil
	}
	if n := r.figures[violations]; n > 0 {
		return fmt.Errorf("%w: %s, %s: %v", errViolated, r.where(), r.library, n)
	}
	if n := r.figures[neverB]; n > 0 {
		return fmt.Errorf("%w: %s, %s: %v rounds", errNeverGranted, r.where(), r.library, n)
	}
	if n := r.figures[archived]; n > 0 {
		return fmt.Errorf("%w: %s, %s: %v", errTaskFailed, r.where(), r.library, n)
	}
	return nil
}
