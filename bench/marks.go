package main

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/perf/benchmath"
)

// value reads what a mark compares with its bound. ok is false if this run did not measure it.
type value func(results) (s benchmath.Summary, ok bool)

// mark is a target of holdfast.
type mark struct {
	scenario string
	text     string
	value    value
	atMost   bool // otherwise at least
	bound    float64
}

// fairWait is the longest wait of 64 callers if no call overtakes another one. It includes 2 ms for
// each section and the time of the hand-offs.
const fairWait = 160 * time.Millisecond

// marks has all targets. In their texts, "best library" is the best peer of this run.
var marks = []mark{
	{"seq", "≥ 0.9 × floor", against("seq", "", floorName, ops), false, 0.9},
	{"seq", "ahead of every library", againstBest("seq", ops), false, 1},
	{"par", "≥ 0.75 × floor on AutoPipeline", against("par", "", pipelinedName, ops), false, 0.75},
	{"par", "≥ 1.3 × best library", againstBest("par", ops), false, 1.3},
	{"par-cluster", "≥ 0.9 × best library", againstBest("par-cluster", ops), false, 0.9},
	{"hot", "≥ 20 × best library", againstBest("hot", ops), false, 20},
	{"hot", "p99 ≤ 1/40 of the best p99", againstBest("hot", p99), true, 1.0 / 40},
	{"multi", "≥ 10 × best library", againstBest("multi", ops), false, 10},
	{"multi", "p99 ≤ 1/10 of the best p99", againstBest("multi", p99), true, 1.0 / 10},
	{"multi", "smallest share of a process ≥ 0.8 of the mean", own("multi", leastShare, 1), false, 0.8},
	{"multi-hold", "≥ 0.93 of the possible", own("multi-hold", ofPossible, 1), false, 0.93},
	{"multi-hold", "p99 ≤ 1.3 × fair (160 ms)", own("multi-hold", p99, us(fairWait)), true, 1.3},
	{"multi-hold", "smallest share of a process ≥ 0.95 of the mean", own("multi-hold", leastShare, 1), false, 0.95},
	{"shared", "≥ 20 × Redisson's read lock", against("shared", "", redissonName, ops), false, 20},
	{"limited", "≥ 0.8 of the possible", own("limited", ofPossible, 1), false, 0.8},
	{"limited", "p99 ≤ 1.5 × fair (53 ms)", own("limited", p99, us(fairWait/limit)), true, 1.5},
	{"memory", "no goroutine for each lease", own("memory", goroutinesPerLease, 1), true, 0.01},
	{"memory", "≤ 1 KiB for each lease", own("memory", bytesPerLease, 1), true, 1024},
	{"wait", "≤ 1 command a process and s", own("wait", commandsPerS, 1), true, 1},
	{"wait", "≤ 600 bytes of heap for each waiter", own("wait", bytesPerWaiter, 1), true, 600},
	{"http-hot", noLimit + ": p99 ≤ 1.5 × p99 without the hot key", against("http-hot", noLimit, quietName, p99), true, 1.5},
	{"http-hot", mostAtOnce + ": p99 ≤ 1.5 × p99 without the hot key", against("http-hot", mostAtOnce, quietName, p99), true, 1.5},
	{"asynq", "with parking, others are done ≤ 1.2 × later than without a lock", parkedOthers, true, 1.2},
	{"asynq", "with parking and a check every 100 ms, the hot account is done ≤ 1.15 × its work (10 s)", parked(hotDone, 10, 100*time.Millisecond), true, 1.15},
	{"asynq", "with parking, ≤ 2.2 deliveries of a hot task", parked(deliveries, 1, 0), true, 2.2},
	{"asynq", "with parking, ≤ 14 lock commands for a hot task and another one", parked(commandsPerHot, 1, 0), true, 14},
	{"asynq", "with parking, all tasks are completed", parked(notCompleted, 1, 0), true, 0},
	{"quorum", "seq, 3 servers: ≥ 0.9 × redsync", against("quorum", "seq, 3 servers", "redsync", ops), false, 0.9},
	{"quorum", "seq, 5 servers: ≥ 0.9 × redsync", against("quorum", "seq, 5 servers", "redsync", ops), false, 0.9},
	{"quorum", "hot, 3 servers: ≥ 20 × redsync", against("quorum", "hot, 3 servers", "redsync", ops), false, 20},
	{"quorum", "hot, 5 servers: ≥ 20 × redsync", against("quorum", "hot, 5 servers", "redsync", ops), false, 20},
	{"quorum", "hot, 3 servers: p99 ≤ 1/20 of redsync's", against("quorum", "hot, 3 servers", "redsync", p99), true, 1.0 / 20},
	{"quorum", "hot, 5 servers: p99 ≤ 1/20 of redsync's", against("quorum", "hot, 5 servers", "redsync", p99), true, 1.0 / 20},
	{"quorum-turns", "a grant in 2 round trips at the median", own("quorum-turns", tripsPerGrant, 1), true, 2},
	{"quorum-turns", "smallest share of a process ≥ 0.5 of the mean", own("quorum-turns", leastShare, 1), false, 0.5},
	{"partition", "never two at once, in s", worst("partition", togetherWorst), true, 0},
	{"partition", "B has the key at most a lease and 250 ms after the silence, in s", worst("partition", grantedWorst), true, (faultLease + 250*time.Millisecond).Seconds()},
	{"lost-answer", "never two at once, in s", worst("lost-answer", togetherWorst), true, 0},
	{"lost-answer", "no key is stuck for longer than a lease, in s", worst("lost-answer", stuckWorst), true, faultLease.Seconds()},
	{"kills", "no trigger is lost", own("kills", lostTriggers, 1), true, 0},
	{"kills", "no older value after a newer one", own("kills", staleRuns, 1), true, 0},
	{"kills", "no runs side by side", own("kills", sideBySide, 1), true, 0},
	{"kills", "no key is left for ever", own("kills", strayKeys, 1), true, 0},
}

// noSlower is the text of the mark for a change of holdfast. Only a run with -before has it, for each
// of its scenarios. Its verdict depends on the whole interval, not only on the median.
const (
	noSlower      = "CPU of an operation ≤ 1.03 × before, with its interval"
	noSlowerBound = 1.03
)

// verdict is a mark with its measured value.
type verdict struct {
	mark  mark
	value benchmath.Summary
}

func (v verdict) String() string {
	m, low, high := v.mark, v.value.Center, v.value.Center
	if m.text == noSlower {
		low, high = v.value.Lo, v.value.Hi
	}
	switch {
	case m.atMost && high <= m.bound, !m.atMost && low >= m.bound:
		return "met"
	case m.atMost && low <= m.bound:
		return "not resolved"
	}
	return "missed"
}

// judge returns the verdict on every mark that was measured.
func judge(rs results) (vs []verdict) {
	all := marks
	for _, s := range scenarios {
		all = append(all, mark{s.name, noSlower, against(s.name, "", beforeName, allCPU), true, noSlowerBound})
	}
	for _, m := range all {
		if v, ok := m.value(rs); ok && !math.IsNaN(v.Center) {
			vs = append(vs, verdict{m, v})
		}
	}
	return vs
}

// own reads a figure of holdfast, divided by unit.
func own(scenario, name string, unit float64) value {
	return func(rs results) (benchmath.Summary, bool) {
		r, ok := rs.get(scenario, "", holdfastName)
		return exactly(r.get(name) / unit), ok
	}
}

// against divides a figure of holdfast by the same figure of another library.
func against(scenario, point, library, name string) value {
	return func(rs results) (benchmath.Summary, bool) {
		mine, _ := rs.get(scenario, point, holdfastName)
		its, _ := rs.get(scenario, point, library)
		return ratio(mine, its, name)
	}
}

// againstBest divides a figure of holdfast by the same figure of the best peer: the greatest
// throughput, or the shortest wait.
func againstBest(scenario, name string) value {
	return func(rs results) (benchmath.Summary, bool) {
		mine, _ := rs.get(scenario, "", holdfastName)
		var best result
		for _, r := range rs {
			if l, _ := libraryNamed(r.library); !l.peer || r.scenario != scenario {
				continue
			}
			if best.figures == nil || (name == ops) == (r.get(name) > best.get(name)) {
				best = r
			}
		}
		return ratio(mine, best, name)
	}
}

// parked reads the worst figure of asynq with parking, over all points, divided by unit. With check it
// reads only the points with that TaskCheckInterval.
func parked(name string, unit float64, check time.Duration) value {
	return func(rs results) (benchmath.Summary, bool) {
		return overPoints("asynq", func(p point) float64 {
			if r, ok := rs.get("asynq", p.Name, "holdfast+parking"); ok && (check == 0 || p.Load.Check == check) {
				return r.get(name) / unit
			}
			return math.Inf(-1)
		})
	}
}

// parkedOthers reads the greatest ratio of the times at which the other accounts are done, with
// parking and without a lock.
func parkedOthers(rs results) (benchmath.Summary, bool) {
	return overPoints("asynq", func(p point) float64 {
		mine, _ := rs.get("asynq", p.Name, "holdfast+parking")
		none, _ := rs.get("asynq", p.Name, "no lock")
		if s, ok := ratio(mine, none, othersDone); ok {
			return s.Center
		}
		return math.Inf(-1)
	})
}

// worst reads holdfast's greatest value of a figure over all points. It is NaN if a point has no such
// figure.
func worst(scenario, name string) value {
	return func(rs results) (benchmath.Summary, bool) {
		return overPoints(scenario, func(p point) float64 {
			if r, ok := rs.get(scenario, p.Name, holdfastName); ok {
				return r.get(name)
			}
			return math.Inf(-1)
		})
	}
}

// overPoints returns the greatest value over the points of a scenario. A point that was not measured
// has the value −∞.
func overPoints(scenario string, get func(point) float64) (benchmath.Summary, bool) {
	s, _ := scenarioNamed(scenario)
	most := math.Inf(-1)
	for _, p := range s.points {
		most = max(most, get(p)) // a NaN remains
	}
	return exactly(most), !math.IsInf(most, -1)
}

// marksText lists the marks that were missed. It says how many were met.
func marksText(rs results, in func(scenario) bool) (text string) {
	met, all := 0, 0
	for _, v := range judge(rs) {
		if s, _ := scenarioNamed(v.mark.scenario); !in(s) {
			continue
		}
		all++
		if v.String() == "met" {
			met++
		}
		if v.String() != "met" || v.mark.text == noSlower {
			text += fmt.Sprintf("- %s, %s: %s, %s\n", v.mark.scenario, v.mark.text, interval(v.value), v)
		}
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("holdfast met %d of its %d targets ([marks.go](marks.go)).\n\n%s", met, all, text)
}
