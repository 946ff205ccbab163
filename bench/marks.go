package main

import (
	"fmt"
	"math"
	"time"
)

// mark is a target of holdfast.
type mark struct {
	scenario string
	text     string
	value    func(results) (interval, bool) // false: not measured in this run
	atMost   bool                           // otherwise at least
	bound    float64
}

// fairWait is the longest wait of 64 callers if no call overtakes another one. It includes 2 ms for
// each section and the time of the hand-offs.
const fairWait = 160 * time.Millisecond

// marks has all targets. In their texts, "best library" is the best peer of this run.
var marks = []mark{
	{"seq", "≥ 0.9 × floor", opsOver("seq", floorName), false, 0.9},
	{"seq", "ahead of every library", opsOverBest("seq"), false, 1},
	{"par", "≥ 0.75 × floor on AutoPipeline", opsOver("par", pipelinedName), false, 0.75},
	{"par", "≥ 1.3 × best library", opsOverBest("par"), false, 1.3},
	{"par-cluster", "≥ 0.9 × best library", opsOverBest("par-cluster"), false, 0.9},
	{"par-5%", "no cliff: ≥ 2/3 of par", besideOf("par-5%"), false, 2.0 / 3},
	{"hot", "≥ 20 × best library", opsOverBest("hot"), false, 20},
	{"hot", "p99 ≤ 1/40 of the best p99", p99OverBest("hot"), true, 1.0 / 40},
	{"hot", "≥ 0.5 × the model", opsOver("hot", modelName), false, 0.5},
	{"hot1k", "≥ 40 × best library", opsOverBest("hot1k"), false, 40},
	{"hot1k", "p99 ≤ 1/30 of the best p99", p99OverBest("hot1k"), true, 1.0 / 30},
	{"hot1k", "all served", own("hot1k", "", func(r result) float64 { return float64(r.Unserved) }), true, 0},
	{"hot1k", "≥ 0.5 × the model", opsOver("hot1k", modelName), false, 0.5},
	{"multi", "≥ 10 × best library", opsOverBest("multi"), false, 10},
	{"multi", "p99 ≤ 1/10 of the best p99", p99OverBest("multi"), true, 1.0 / 10},
	{"multi", "smallest share ≥ 0.8 of the mean", own("multi", "", smallestShare), false, 0.8},
	{"multi-hold", "≥ 0.93 of the possible", own("multi-hold", "", busyShare), false, 0.93},
	{"multi-hold", "p99 ≤ 1.3 × fair (160 ms)", own("multi-hold", "", func(r result) float64 { return r.P99US / us(fairWait) }), true, 1.3},
	{"multi-hold", "shares within 5 %", own("multi-hold", "", shareSpread), true, 0.05},
	{"shared", "≥ 20 × Redisson's read lock", opsOver("shared", redissonName), false, 20},
	{"shared", "≤ 1,000 commands/s", own("shared", "", func(r result) float64 { return r.CmdsPerOp * r.OpsPerS }), true, 1000},
	{"limited", "≥ 0.8 of the possible", own("limited", limited3, func(r result) float64 { return busyShare(r) / limit }), false, 0.8},
	{"limited", "≥ 0.9 × what the exclusive key reaches of its possible", placesOverExclusive, false, 0.9},
	{"limited", "p99 ≤ 1.5 × fair (53 ms)", own("limited", limited3, func(r result) float64 { return r.P99US * limit / us(fairWait) }), true, 1.5},
	{"limited", "≤ 4 commands per acquisition", own("limited", limited3, func(r result) float64 { return r.CmdsPerOp }), true, 4},
	{"rw", "the writer's p99 ≤ a read and 10 ms, in ms", own("rw", "", func(r result) float64 { return named(writerP99US)(r) / 1e3 }), true, 12},
	{"share-pair", oneByOne + ": Redis CPU ≤ 2.2 × an exclusive hash", shareOver(oneByOne, hashName), true, 2.2},
	{"share-pair", sideBySide + ": Redis CPU ≤ 2.2 × an exclusive hash", shareOver(sideBySide, hashName), true, 2.2},
	{"hold", "no goroutine per lease", own("hold", "lease by README", named(goroutinesPerLease)), true, 0.01},
	{"hold", "≤ 1 KB per lease", own("hold", "lease by README", named(bytesPerLease)), true, 1024},
	{"hold", "≤ 1/10 of the round trips, both with a lease of 9 s", tripsOverBest, true, 0.1},
	{"hold100k", "a renewal pass < 1 s, in ms", own("hold100k", "", named(longestPassMS)), true, 1000},
	{"wait", "≤ 1 command a process and s", own("wait", "", named(cmdsPerProcessS)), true, 1},
	{"wait", "≤ 2 KB per waiter", own("wait", "", named(bytesPerWaiter)), true, 2048},
	{"reentry", "0 round trips", own("reentry", "", func(r result) float64 { return round2(r.CmdsPerOp) }), true, 0},
	{"reentry", "< 200 ns, with its release", own("reentry", "", func(r result) float64 { return 1e9 / r.OpsPerS }), true, 200},
	{"reentry", "≤ 1 allocation", own("reentry", "", func(r result) float64 { return round2(r.AllocsPerOp) }), true, 1},
	{"once", "fresh: 2 round trips", own("once", "fresh", trips), true, 2},
	{"once", "replay: 1 round trip", own("once", "replay", trips), true, 1},
	{"http-replay", "handler alone: ≥ 0.85 × a GET", opsOverAt("http-replay", "handler alone", getName), false, 0.85},
	{"http-replay", "over HTTP: ≥ 0.85 × a GET", opsOverAt("http-replay", "over HTTP", getName), false, 0.85},
	{"http-hot", "no limit: p99 ≤ 1.5 × that without the hot key", p99OverQuiet("no limit"), true, 1.5},
	{"http-hot", mostAtOnce + ": p99 ≤ 1.5 × that without the hot key", p99OverQuiet(mostAtOnce), true, 1.5},
	{"stripes", "linear to 600/s: ≥ 0.97 of 5/s per key at every point", leastStripes, false, 0.97},
	{"stripes", "any of 120 keys: ≥ 0.97 of 600/s", own("stripes", anyStripe, func(r result) float64 { return r.OpsPerS / 600 }), false, 0.97},
	{"observer", "≥ 0.95 of seq with a no-op OpenTelemetry", tracedOverPlain, false, 0.95},
	{"commands", "never above 4 commands per acquisition", mostCommands, true, 4},
	{"partition", "never two at once, in s", worstOfAll("partition", togetherS+worstOf), true, 0},
	{"partition", "B has the key at most one lease and 250 ms after the silence, in s", worstOfAll("partition", grantedS+worstOf), true, (faultLease + 250*time.Millisecond).Seconds()},
	{"lost-answer", "never two at once, in s", worstOfAll("lost-answer", togetherS+worstOf), true, 0},
	{"lost-answer", "no key is stuck for longer than a lease, in s", worstOfAll("lost-answer", stuckS+worstOf), true, faultLease.Seconds()},
}

// changes are the marks for a change of holdfast. Only a run with -before has them. The verdict
// depends on the whole interval, not only on the median.
var changes = []mark{noSlower("seq"), noSlower("par"), noSlower("hot"), noSlower("multi")}

// noSlower compares the CPU time of a pair with that of the build before the change. It is the sum
// of the CPU times of Redis and of the client.
func noSlower(scenario string) mark {
	return mark{scenario, "CPU of a pair ≤ 1.03 × before, with its interval", func(rs results) (interval, bool) {
		before, _ := rs.get(scenario, "", beforeName)
		return rs.over(before, cpuOf)
	}, true, 1.03}
}

// verdict is a mark with its measured value.
type verdict struct {
	mark     mark
	value    interval
	measured bool
	change   bool
}

func (v verdict) met() bool {
	if v.change {
		return v.value.High <= v.mark.bound
	}
	if v.mark.atMost {
		return v.value.Median <= v.mark.bound
	}
	return v.value.Median >= v.mark.bound
}

func (v verdict) String() string {
	switch {
	case !v.measured:
		return "not measured"
	case v.met():
		return "met"
	case v.change && v.value.Low <= v.mark.bound:
		return "not resolved"
	}
	return "missed"
}

// judge returns the verdict on every mark of the scenarios that ran.
func judge(rs results) []verdict {
	ran := map[string]bool{}
	for _, r := range rs {
		ran[r.Scenario] = true
	}
	var vs []verdict
	for _, m := range marks {
		if ran[m.scenario] {
			v := verdict{mark: m}
			v.value, v.measured = m.value(rs)
			v.measured = v.measured && !math.IsNaN(v.value.Median) && !math.IsInf(v.value.Median, 0)
			vs = append(vs, v)
		}
	}
	for _, m := range changes {
		if v, ok := m.value(rs); ok {
			vs = append(vs, verdict{mark: m, value: v, measured: true, change: true})
		}
	}
	return vs
}

func own(scenario, point string, get func(result) float64) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		r, ok := rs.get(scenario, point, holdfastName)
		if !ok {
			return interval{}, false
		}
		return exactly(get(r)), true
	}
}

// named returns a function that reads a figure by its name. It returns NaN for a missing figure,
// and no mark counts NaN as measured.
func named(name string) func(result) float64 {
	return func(r result) float64 {
		if v, ok := r.Figures[name]; ok {
			return v
		}
		return math.NaN()
	}
}

// round2 rounds to two decimals, because a connection that opens during a run adds a small part.
func round2(v float64) float64 { return math.Round(v*100) / 100 }

func trips(r result) float64 { return round2(named(tripsPerOp)(r)) }

func opsOver(scenario, library string) func(results) (interval, bool) {
	return opsOverAt(scenario, "", library)
}

func opsOverAt(scenario, point, library string) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		other, _ := rs.get(scenario, point, library)
		return rs.over(other, opsOf)
	}
}

func opsOverBest(scenario string) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		best := rs.peers(scenario, "").best(func(r result) float64 { return -r.OpsPerS })
		return rs.over(best, opsOf)
	}
}

func p99OverBest(scenario string) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		best := rs.peers(scenario, "").best(p99Of)
		return rs.over(best, p99Of)
	}
}

func p99Of(r result) float64 { return r.P99US }

func p99OverQuiet(point string) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		quiet, _ := rs.get("http-hot", point, quietName)
		return rs.over(quiet, p99Of)
	}
}

func besideOf(scenario string) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		s, _ := scenarioNamed(scenario)
		mine, ok := rs.get(scenario, "", holdfastName)
		over, ok2 := rs.beside(s, mine)
		return exactly(over), ok && ok2
	}
}

// best returns the cell with the least cost, or the zero result.
func (rs results) best(cost func(result) float64) (b result) {
	for i, r := range rs {
		if i == 0 || cost(r) < cost(b) {
			b = r
		}
	}
	return b
}

func tripsOverBest(rs results) (interval, bool) {
	mine, _ := rs.get("hold", "lease 9 s", holdfastName)
	best := rs.peers("hold", "lease 9 s").best(named(tripsPerLeaseS))
	_, renewed := mine.Figures[renewalsSeen] // otherwise the run was too short
	i, ok := rs.over(best, named(tripsPerLeaseS))
	return i, ok && renewed
}

func tracedOverPlain(rs results) (interval, bool) {
	plain, ok := rs.get("observer", "", holdfastName)
	traced, ok2 := rs.get("observer", "", tracedName)
	if !ok || !ok2 {
		return interval{}, false
	}
	return ratio(traced, plain, opsOf)
}

// busyShare returns how many sections were inside on average. For an exclusive key 1 is the
// maximum. A sleep takes longer than requested, so busyShare uses the measured length of a section.
func busyShare(r result) float64 { return r.OpsPerS * named(insideUS)(r) / 1e6 }

// placesOverExclusive compares the two points of limited, each relative to its maximum.
func placesOverExclusive(rs results) (interval, bool) {
	limited, ok := rs.get("limited", limited3, holdfastName)
	alone, ok2 := rs.get("limited", exclusive, holdfastName)
	if !ok || !ok2 {
		return interval{}, false
	}
	i, ok := ratio(limited, alone, busyShare)
	return interval{i.Median / limit, i.Low / limit, i.High / limit}, ok
}

// shareOver returns the Redis CPU of a share divided by that of another hold.
func shareOver(point, library string) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		share, ok := rs.get("share-pair", point, shareName)
		other, ok2 := rs.get("share-pair", point, library)
		if !ok || !ok2 {
			return interval{}, false
		}
		return ratio(share, other, redisCPUOf)
	}
}

func redisCPUOf(r result) float64 { return r.RedisCPUPerOp }

func meanShare(r result) float64 {
	var sum int64
	for _, n := range r.Shares {
		sum += n
	}
	return float64(sum) / float64(len(r.Shares))
}

func smallestShare(r result) float64 {
	least := math.Inf(1)
	for _, n := range r.Shares {
		least = min(least, float64(n)/meanShare(r))
	}
	return least
}

func shareSpread(r result) float64 {
	most := 0.0
	for _, n := range r.Shares {
		most = max(most, math.Abs(float64(n)/meanShare(r)-1))
	}
	return most
}

// leastStripes returns the lowest throughput over all points, each relative to the possible
// throughput for its number of keys.
func leastStripes(rs results) (interval, bool) {
	least, ok := math.Inf(1), false
	for _, r := range rs {
		var keys float64
		if r.Scenario != "stripes" {
			continue
		}
		if _, err := fmt.Sscanf(r.Point, "%f keys", &keys); err == nil {
			least, ok = min(least, r.OpsPerS*orderTime.Seconds()/keys), true
		}
	}
	return exactly(least), ok
}

// worstOfAll returns holdfast's greatest value of a figure over all points. It returns NaN if a
// point has no such figure.
func worstOfAll(scenario, name string) func(results) (interval, bool) {
	return func(rs results) (interval, bool) {
		worst, ok := 0.0, false
		for _, r := range rs {
			if r.Scenario == scenario && r.Library == holdfastName {
				worst, ok = max(worst, named(name)(r)), true // a NaN remains
			}
		}
		return exactly(worst), ok
	}
}

func mostCommands(rs results) (interval, bool) {
	most, ok := 0.0, false
	for _, r := range rs {
		if r.Scenario == "commands" {
			most, ok = max(most, r.CmdsPerOp), true
		}
	}
	return exactly(most), ok
}
