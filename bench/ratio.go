package main

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
)

// resamples is the number of samples that the bootstrap draws.
const resamples = 2000

// interval is a figure with its 95 % interval. With a single round, both ends of the interval are
// the figure itself.
type interval struct{ Median, Low, High float64 }

// exactly returns a figure without an interval.
func exactly(v float64) interval { return interval{v, v, v} }

func (i interval) String() string {
	if i.Low == i.High {
		return number(i.Median)
	}
	return fmt.Sprintf("%s [%s, %s]", number(i.Median), number(i.Low), number(i.High))
}

// bootstrap returns the median of vs and its 95 % percentile interval. The seed is fixed, so that
// the same rounds print the same interval. vs must not be empty.
func bootstrap(vs []float64) interval {
	if len(vs) == 1 {
		return exactly(vs[0])
	}
	random := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, resamples)
	sample := make([]float64, len(vs))
	for i := range medians {
		for j := range sample {
			sample[j] = vs[random.IntN(len(vs))]
		}
		medians[i] = middle(sample)
	}
	slices.Sort(medians)
	tail := resamples / 40 // 2.5 % at each end
	return interval{middle(slices.Clone(vs)), medians[tail], medians[resamples-1-tail]}
}

// middle sorts vs and returns its median.
func middle(vs []float64) float64 {
	slices.Sort(vs)
	n := len(vs)
	return (vs[(n-1)/2] + vs[n/2]) / 2
}

// ratio divides a figure of the result mine by the same figure of the result its, separately for
// each round that measured both, because the runs of one round are close together in time. It
// returns the median. ok is false if no round has a ratio that is a number.
func ratio(mine, its result, get func(result) float64) (i interval, ok bool) {
	var vs []float64
	for _, a := range mine.runs() {
		for _, b := range its.runs() {
			if v := get(a) / get(b); a.round == b.round && !math.IsNaN(v) {
				vs = append(vs, v)
			}
		}
	}
	if len(vs) == 0 {
		return interval{}, false
	}
	return bootstrap(vs), true
}

// over returns holdfast's figure divided by that of other, at the same point. ok is false for the
// zero result, which represents a cell that was not measured.
func (rs results) over(other result, get func(result) float64) (interval, bool) {
	mine, ok := rs.get(other.Scenario, other.Point, holdfastName)
	if !ok || other.Library == holdfastName {
		return interval{}, false
	}
	return ratio(mine, other, get)
}

// withRatios returns r with the ratios as figures. JSON has no infinity, so a ratio that is
// infinite is left out.
func (rs results) withRatios(r result) result {
	all := figures{}
	maps.Copy(all, r.Figures)
	for name, get := range map[string]func(result) float64{opsRatio: opsOf, cpuRatio: cpuOf} {
		if i, ok := rs.over(r, get); ok && !math.IsInf(i.High, 0) {
			all[name], all[name+lowEnd], all[name+highEnd] = i.Median, i.Low, i.High
		}
	}
	r.Figures = all
	return r
}

// runs returns the rounds of r, or r itself if it is not a median.
func (r result) runs() []result {
	if len(r.rounds) == 0 {
		return []result{r}
	}
	return r.rounds
}

func opsOf(r result) float64 { return r.OpsPerS }

// cpuOf returns the CPU time of Redis and of the clients per operation.
func cpuOf(r result) float64 { return r.RedisCPUPerOp + r.ClientCPUPerOp }
