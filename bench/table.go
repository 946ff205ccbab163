package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// sheet is a table, before it becomes text or Markdown.
type sheet struct {
	name, title string
	head        []string
	rows        [][]string
	notes       []string
}

// column is one figure of a cell.
type column struct {
	head string
	get  func(result) string
}

func figure(head, name string) column {
	return column{head, func(r result) string {
		if v, ok := r.Figures[name]; ok {
			return number(v)
		}
		return "–"
	}}
}

// duration is the column of a figure in µs.
func duration(head, name string) column {
	return column{head, func(r result) string {
		if v, ok := r.Figures[name]; ok {
			return micros(v)
		}
		return "–"
	}}
}

// signed is the column of a figure that may be below 0.
func signed(head, name string) column {
	return column{head, func(r result) string {
		v, ok := r.Figures[name]
		switch {
		case !ok:
			return "–"
		case v < 0:
			return "−" + number(-v)
		}
		return number(v)
	}}
}

func count(head string, get func(result) float64) column {
	return column{head, func(r result) string { return number(get(r)) }}
}

func latency(head string, get func(result) float64) column {
	return column{head, func(r result) string { return micros(get(r)) }}
}

var unserved = column{"unserved", func(r result) string { return fmt.Sprint(r.Unserved) }}

var (
	speedColumns = []column{
		latency("p50", func(r result) float64 { return r.P50US }),
		latency("p99", func(r result) float64 { return r.P99US }),
		latency("max", func(r result) float64 { return r.MaxUS }),
		count("commands/op", func(r result) float64 { return r.CmdsPerOp }),
		figure("round trips/op", tripsPerOp),
		count("Redis µs/op", func(r result) float64 { return r.RedisCPUPerOp }),
		count("client µs/op", func(r result) float64 { return r.ClientCPUPerOp }),
		count("allocs/op", func(r result) float64 { return r.AllocsPerOp }),
		unserved,
	}
	holdColumns = []column{
		figure("goroutines/lease", goroutinesPerLease), figure("bytes/lease", bytesPerLease),
		figure("commands/lease·s", cmdsPerLeaseS), figure("round trips/lease·s", tripsPerLeaseS),
		figure("longest pass, ms", longestPassMS), figure("renewals", renewalsSeen), figure("lost", leasesLost),
		{"never granted", unserved.get},
	}
	waitColumns = []column{
		figure("commands/process·s", cmdsPerProcessS), figure("commands/waiter·s", cmdsPerWaiterS), figure("bytes/waiter", bytesPerWaiter),
	}
)

var memoryColumns = []column{
	figure("keys held", keysHeld), figure("bytes/key held", bytesPerKey), figure("keys left", keysLeft), signed("bytes left", bytesLeft),
	figure("used_memory before", usedBefore), figure("held", usedHeld), figure("after", usedAfter),
	{"never granted", unserved.get},
}

const hotNote = "p50, p99 and max describe the whole requests of the 100 clients, including their handlers, which take 20 to 50 ms. " +
	"httpmw.Exclusive has its default options, except MaxWaiting. A client of the hot key sends its next request after Retry-After, or up to a second after it was served. " +
	"The last three columns describe the hot key. A request in the server runs, waits, or is being refused. " +
	"If the server processes at most 200 requests at once, the others wait in front of httpmw.Exclusive, in the order of their arrival."

// hotColumns returns the columns of http-hot. Some compare with the run without clients of the hot
// key.
func hotColumns(rs results) []column {
	overQuiet := func(head string, get func(result) float64) column {
		return column{head, func(r result) string {
			quiet, ok := rs.get(r.Scenario, r.Point, quietName)
			i, measured := ratio(r, quiet, get)
			if !ok || !measured || r.Library == quietName {
				return "–"
			}
			return i.String()
		}}
	}
	return []column{
		count("requests/s", opsOf),
		latency("p50", func(r result) float64 { return r.P50US }), latency("p99", p99Of), latency("max", func(r result) float64 { return r.MaxUS }),
		overQuiet("p99 ÷ quiet", p99Of),
		duration("beyond the handler, p50", beyondP50US), duration("p99", beyondP99US), overQuiet("p99 ÷ quiet", named(beyondP99US)),
		unserved,
		figure("served/s", hotServedS), figure("refused/s", hotRefusedS), figure("most in the server", hotPresent),
	}
}

const memoryNote = "The keys are account:N, like typical keys of a program. used_memory does not include mem_clients_normal, the buffers of connections. " +
	"The bytes of a key include its part of the hash tables of Redis. When no keys are left, the remaining bytes are tables and caches."

const clusterNote = "Libraries on go-redis use a ClusterClient; rueidis recognizes a Cluster. All libraries support a Cluster, so none is left out."

// sheetOf returns the table of s.
func sheetOf(s scenario, rs results) sheet {
	sh := sheet{name: s.name, title: s.title}
	k := s.points[0].Kind
	var cols []column
	if len(s.points) > 1 {
		cols = append(cols, column{"", func(r result) string { return r.Point }})
	}
	cols = append(cols, column{"library", func(r result) string { return r.Library }})
	switch k {
	case holdKind:
		cols = append(cols, holdColumns...)
	case waitKind:
		cols = append(cols, waitColumns...)
	case memoryKind:
		cols = append(cols, memoryColumns...)
		sh.notes = append(sh.notes, memoryNote)
	case hotKind:
		cols = append(cols, hotColumns(rs)...)
		sh.notes = append(sh.notes, hotNote)
	case faultKind:
		special, legend := faultColumns(s.points[0].Moment)
		cols = append(cols, special...)
		sh.notes = append(sh.notes, legend)
	default:
		if s.delay > 0 {
			cols = append(cols, duration("ping", pingUS))
		}
		cols = append(cols, count("ops/s", opsOf))
		if s.points[0].Pairs {
			cols = append(cols, duration("pair p50", pairP50US), duration("pair p99", pairP99US))
		}
		if s.libraries == nil {
			cols = append(cols, overIt("holdfast ÷ it", rs, opsOf), overIt("CPU, holdfast ÷ it", rs, cpuOf))
		}
		if s.beside != "" {
			cols = append(cols, column{"÷ its " + s.beside, func(r result) string { return besideText(rs, s, r) }})
		}
		if k == rwKind {
			cols = append(cols, figure("writes/s", writesS), duration("writer p50", writerP50US), duration("writer p99", writerP99US))
		}
		if slices.Contains(s.libraries, shareName) {
			cols = append(cols, column{"Redis CPU, share ÷ it", func(r result) string { return shareText(rs, r) }})
		}
		if s.points[0].Limit > 0 {
			cols = append(cols, column{"of the possible", func(r result) string { return number(s.ofPossible(r)) }})
		}
		cols = append(cols, speedColumns...)
		if s.points[0].Procs > 1 {
			cols = append(cols, column{"shares", shares})
		}
	}
	if k != faultKind && k != memoryKind { // a scenario with faults measures violations itself, and memory has no witness
		cols = append(cols, column{"violations", func(r result) string { return fmt.Sprint(r.Violations) }})
	}
	for _, c := range cols {
		sh.head = append(sh.head, c.head)
	}
	for _, r := range rs {
		if r.Scenario == s.name {
			sh.rows = append(sh.rows, row(cols, r))
		}
	}
	if s.cluster {
		sh.notes = append(sh.notes, clusterNote)
	}
	if k == holdKind && len(s.libraries) > 1 {
		sh.notes = append(sh.notes, withoutWatchdog()+" have no watchdog: their locks expire if a handler takes longer.")
	}
	return sh
}

// ofPossible returns how much of the time the places of a key were taken, from 0 to 1.
func (s scenario) ofPossible(r result) float64 {
	for _, p := range s.points {
		if p.Name == r.Point {
			return busyShare(r) / float64(max(p.Limit, 1))
		}
	}
	return math.NaN()
}

// shareText compares the Redis CPU of a share with that of the row.
func shareText(rs results, r result) string {
	if i, ok := shareOver(r.Point, r.Library)(rs); ok && r.Library != shareName {
		return i.String()
	}
	return "–"
}

func row(cols []column, r result) []string {
	var cells []string
	for _, c := range cols {
		cells = append(cells, c.get(r))
	}
	return cells
}

func withoutWatchdog() string {
	var names []string
	for _, l := range libraries {
		if !l.watchdog && !l.limit {
			names = append(names, l.name)
		}
	}
	return strings.Join(names, ", ")
}

// overIt is the column with holdfast's figure divided by that of the row.
func overIt(head string, rs results, get func(result) float64) column {
	return column{head, func(r result) string {
		over, ok := rs.over(r, get)
		if !ok || r.OpsPerS == 0 {
			return "–"
		}
		return over.String()
	}}
}

// beside returns the throughput of a cell divided by that of the same library in the scenario
// s.beside. The two are not measured in turns, so the ratio has no interval.
func (rs results) beside(s scenario, r result) (over float64, ok bool) {
	other, ok := rs.get(s.beside, "", r.Library)
	return r.OpsPerS / other.OpsPerS, ok && other.OpsPerS > 0
}

func besideText(rs results, s scenario, r result) string {
	if over, ok := rs.beside(s, r); ok {
		return number(over)
	}
	return "–"
}

// shares returns the smallest and the greatest share of a process, divided by the mean.
func shares(r result) string {
	if meanShare(r) == 0 {
		return "–"
	}
	most := 0.0
	for _, n := range r.Shares {
		most = max(most, float64(n)/meanShare(r))
	}
	return fmt.Sprintf("%.2f to %.2f", smallestShare(r), most)
}

// verdictSheet returns the result of every mark.
func verdictSheet(rs results) sheet {
	sh := sheet{name: "marks", title: "targets and results", head: []string{"scenario", "mark", "measured", "verdict"}}
	for _, v := range judge(rs) {
		value := "–"
		if v.measured {
			value = v.value.String()
		}
		sh.rows = append(sh.rows, []string{v.mark.scenario, v.mark.text, value, v.String()})
	}
	return sh
}

// sheets returns all tables of a run. The marks are the last one.
func (r report) sheets() []sheet {
	var all []sheet
	if sh, ok := r.contenderSheet(); ok {
		all = append(all, sh)
	}
	for _, s := range r.options.scenarios {
		all = append(all, sheetOf(s, r.cells))
	}
	return append(all, verdictSheet(r.cells))
}

// text is the report on a terminal.
func (r report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.environment)
	for _, l := range r.settings() {
		fmt.Fprintf(&b, "  %s: %s\n", l.name, l.settings)
	}
	for _, sh := range r.sheets() {
		fmt.Fprintf(&b, "\n%s: %s\n", sh.name, sh.title)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, strings.Join(sh.head, "\t"))
		for _, row := range sh.rows {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		w.Flush()
		for _, n := range sh.notes {
			fmt.Fprintln(&b, n)
		}
	}
	if !r.options.onlyFaults() {
		fmt.Fprintf(&b, "\n%s", legend)
	}
	for _, f := range r.failures {
		fmt.Fprintf(&b, "not measured: %s\n", f)
	}
	return b.String()
}

// number formats v with about three significant digits, and commas.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.IsInf(v, 0):
		return "∞"
	case v < 0.00001:
		return "< 0.00001"
	case v < 0.01:
		return strings.TrimRight(fmt.Sprintf("%.5f", v), "0")
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// micros formats a duration given in µs with three significant digits.
func micros(v float64) string {
	d := time.Duration(v * 1e3)
	unit := time.Nanosecond
	for unit*1000 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}
