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

// atLeast marks a lower bound, because the run ended before the event did. The worst value is
// marked if one round has such a figure, and the median if half of the rounds have one.
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
	partitionLegend = "A has the key and B waits for it. At a random moment of the first 2.7 s, all data from and to A begins to be lost. " +
		"A's handler ends when its ctx is canceled. Two at once: from B's grant to that end. A negative value: A was canceled that long before B had the key, as it should be. " +
		"If A was not canceled by the end of the run, up to 30 s after the silence, the time until then counts."
	lostLegend = "Redis executes A's command, and the reply is lost: A's connection stays open and silent, or is cut; new connections work. " +
		"Acquire: B starts at that moment; a call waits for up to 10 s, and a handler takes 1 s; stuck is the time until one of the two works. " +
		"Renew: the first renewal; B waits, and A's handler works until its ctx is canceled, or for 10 s; stuck is the time from its end to B's grant. " +
		"Release: B waits; stuck is the time from A's call to B's grant. A library that polls adds up to its interval. " +
		"Result for A's caller: the key, or the result of its call, with the time since the call; renew: whether its handler was canceled, with the time since the reply was lost."
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

// asGood lists for each point the libraries that are as good as holdfast. They have no two holders
// at once, no noticeably longer delay, and no waiter that is never served. They have no error if
// holdfast had none. asGood marks those that were ahead.
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

const noticeableS = 0.25 // the effect of polling and of a busy machine

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

// delay is the longest delay for other callers. In the partition it counts from the silence,
// because a holder that is canceled sooner does not keep the key longer.
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
