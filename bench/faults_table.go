package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"
)

// seconds is the column of one figure of the scenarios with faults.
func seconds(head, name string) column {
	return column{head, func(r result) string { return brief(named(name)(r)) }}
}

// brief formats v with hundredths, or as a dash if it was not measured.
func brief(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case v == 0:
		return "0"
	case math.Abs(v) < 0.01:
		return "< 0.01"
	}
	return strings.Replace(fmt.Sprintf("%.2f", v), "-", "−", 1)
}

// atLeast marks figures that are lower bounds, because the run ended before the measured event. The
// worst value is marked if at least one round has such a figure, and the median if at least half of
// the rounds have one.
func atLeast(c column, name string, part float64) column {
	return column{c.head, func(r result) string {
		if n := r.Figures[name]; n > 0 && n >= part*r.Figures[conclusive] {
			return "≥ " + c.get(r)
		}
		return c.get(r)
	}}
}

var (
	rounds = column{"rounds", counted(conclusive)}

	partitionColumns = []column{
		rounds,
		atLeast(seconds("two at once, s: median", togetherS+medianOf), untold, 0.5),
		atLeast(seconds("worst", togetherS+worstOf), untold, 0),
		seconds("A is canceled, s after B has the key: first", toldS+leastOf),
		seconds("median", toldS+medianOf),
		seconds("last", toldS+worstOf),
		seconds("B has the key, s after the silence: median", grantedS+medianOf),
		seconds("worst", grantedS+worstOf),
		{"A never canceled", counted(untold)},
		{"B never granted", counted(neverB)},
	}
	lostColumns = []column{
		rounds,
		atLeast(seconds("two at once, s: median", togetherS+medianOf), untold, 0.5),
		atLeast(seconds("worst", togetherS+worstOf), untold, 0),
		atLeast(seconds("key stuck, s: median", stuckS+medianOf), neverB, 0.5),
		atLeast(seconds("worst", stuckS+worstOf), neverB, 0),
		{"result for A's caller", func(r result) string { return r.Said }},
		{"B never granted", counted(neverB)},
	}
)

func counted(name string) func(result) string {
	return func(r result) string { return fmt.Sprint(r.Figures[name]) }
}

const (
	partitionLegend = "A has the key, and B waits for it. At a random moment in the first 2.7 s after A's grant, A's network begins to lose all data in both directions. This is the silence. " +
		"A's handler ends when its ctx is canceled. A and B are two at once from B's grant to that end. A negative value means that A was canceled that long before B had the key, as it should be. " +
		"If A was not canceled by the end of the run, which lasts 30 s, the time until the end of the run counts, and ≥ marks the figure."
	lostLegend = "Redis executes A's command, and the reply is lost. A's connection then stays open and silent, or it is cut. New connections work. " +
		"Acquire: B's call starts when A's reply is lost. A's call waits for up to 10 s, and each handler takes 1 s. The key is stuck until one of the two handlers starts. " +
		"Renew: the reply to A's first renewal is lost while B waits. A's handler works until its ctx is canceled, or for 10 s. The key is stuck from the end of A's handler to B's grant. " +
		"Release: the reply to A's release is lost while B waits. The key is stuck from A's call to B's grant. For a library that polls, these times include up to one polling interval. " +
		"The result for A's caller is the key, or the result of its call, with the time since the call. For renew it says whether A's handler was canceled, with the time since the reply was lost."
)

// faultColumns returns the columns of a scenario with faults, and their legend.
func faultColumns(m moment) ([]column, string) {
	if m == partition {
		return partitionColumns, partitionLegend
	}
	return lostColumns, lostLegend
}

// contenderSheet describes how each library was used in the scenarios with faults. ok is false if
// none ran.
func (r report) contenderSheet() (sh sheet, ok bool) {
	sh = sheet{name: "faults", title: "how each is used in partition and lost-answer", head: []string{"used as", "version", "settings"}}
	for _, c := range contenders {
		l, _ := libraryNamed(c.name)
		for _, cell := range r.cells {
			if s, found := scenarioNamed(cell.Scenario); found && s.faults() && cell.Library == c.name {
				sh.rows = append(sh.rows, []string{c.name, r.environment.versionOf(l), c.settings})
				break
			}
		}
	}
	return sh, len(sh.rows) > 0
}

func scenarioNamed(name string) (scenario, bool) {
	for _, s := range scenarios {
		if s.name == name {
			return s, true
		}
	}
	return scenario{}, false
}

// asGood lists, for each point, the libraries that are as good as holdfast. Such a library never
// has two holders at once, serves every waiter, and is not noticeably slower. A library that
// returned an error or canceled a handler is listed only if holdfast did so too. asGood marks
// libraries that were ahead.
func asGood(rs results) []string {
	var lines []string
	for _, s := range scenarios {
		if !s.faults() {
			continue
		}
		for _, p := range s.points {
			if mine, ok := rs.get(s.name, p.Name, holdfastName); ok {
				names := strings.Join(equals(mine, rs.peers(s.name, p.Name)), ", ")
				lines = append(lines, fmt.Sprintf("%s: %s", strings.TrimSpace(s.name+" "+p.Name), cmp.Or(names, "none")))
			}
		}
	}
	return lines
}

const noticeableS = 0.25 // smaller differences may be due to polling or a busy machine

func equals(mine result, peers results) (names []string) {
	for _, r := range peers {
		its, own := r.delay(), mine.delay()
		switch {
		case r.Figures[conclusive] == 0 || r.Violations > 0 || r.Figures[neverB] > 0 || r.disappoints() && !mine.disappoints() || its > own+noticeableS:
		case its < own-noticeableS:
			names = append(names, fmt.Sprintf("%s (ahead: %s s at worst against %s s)", r.Library, brief(its), brief(own)))
		default:
			names = append(names, r.Library)
		}
	}
	return names
}

// delay returns the longest delay for other callers. In the partition it counts from the silence.
// If it counted from the cancellation of A's handler, a library that cancels sooner would look
// slower.
func (r result) delay() float64 {
	if granted, ok := r.Figures[grantedS+worstOf]; ok && r.Scenario == string(partition) {
		return granted
	}
	return r.Figures[stuckS+worstOf]
}

// disappoints reports whether a caller got an error, or a handler was canceled.
func (r result) disappoints() bool {
	return strings.Contains(r.Said, "error") || strings.Contains(r.Said, "canceled")
}
