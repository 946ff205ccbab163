package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// mark is a row of the table of marks: a figure and the limit for it.
type mark struct {
	text   string
	most   float64 // NaN: the figure has no limit
	values []float64
}

// row compares the median with the limit. A figure that must be 0 must be 0 in each round.
func (m mark) row() []string {
	values := spread("%.2f", m.values)
	quant := 0.5
	want, verdict := fmt.Sprintf("≤ %v", m.most), "met"
	if m.most == 0 {
		values, quant, want = spread("%.0f", m.values), 1, "0"
	}
	if quantile(slices.Clone(m.values), quant) > m.most {
		verdict = "**missed**"
	}
	if math.IsNaN(m.most) {
		want, verdict = "–", "–"
	}
	return []string{m.text, values, want, verdict}
}

// marks returns the rows for the rounds of one load, without a lock and with parking. Rounds with
// the same index ran close together, so that a ratio compares runs under the same conditions.
func marks(none, park rounds) []mark {
	var others, hot []float64
	for i := range park {
		p, n := &park[i], &none[i]
		others = append(others, ratio(p.othersLast, n.othersLast, p.othersDone == p.others))
		hot = append(hot, ratio(p.hotLast, p.work(), p.hotDone == p.hotTasks))
	}
	hotMost := 1.15
	if park[0].check > 100*time.Millisecond {
		hotMost = math.NaN()
	}
	zero := func(get func(faults) int) []float64 {
		return park.values(func(r *result) float64 { return float64(get(r.faults)) })
	}
	return []mark{
		{"others done, parking / no lock", 1.2, others},
		{"hot account done / its pure work", hotMost, hot},
		{"deliveries per hot task", 2.2, park.values(func(r *result) float64 { return r.delivered })},
		{"lock commands per hot task, with those of the others", 14, park.values(func(r *result) float64 { return r.sent })},
		{"retries used up", 0, zero(func(f faults) int { return f.retries })},
		{"tasks archived", 0, zero(func(f faults) int { return f.archived })},
		{"tasks not completed", 0, park.values(func(r *result) float64 { return float64(r.unstored + r.hotTasks - r.hotDone + r.others - r.othersDone) })},
		{"overlaps", 0, zero(func(f faults) int { return f.overlaps })},
	}
}

// ratio returns a/b, or infinity if the tasks that a measures were not done at the end of the run.
func ratio(a, b time.Duration, done bool) float64 {
	if !done {
		return math.Inf(1)
	}
	return a.Seconds() / b.Seconds()
}

// markSheet returns the marks of the loads that ran both without a lock and with parking.
func markSheet(all []rounds) sheet {
	s := sheet{head: []string{"processes", "TaskCheckInterval", "", "measured", "mark", ""}}
	for _, park := range all {
		for _, none := range all {
			same := none[0].load
			same.policy = policyPark
			if none[0].policy != policyNone || park[0].load != same {
				continue
			}
			for _, m := range marks(none, park) {
				s.rows = append(s.rows, append([]string{fmt.Sprint(park[0].procs), park[0].check.String()}, m.row()...))
			}
		}
	}
	return s
}
