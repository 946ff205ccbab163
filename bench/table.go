package main

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/perf/benchmath"
)

// table is a table of a page.
type table struct {
	head []string
	rows [][]string
}

// String returns t as Markdown, with columns that are aligned for a terminal.
func (t table) String() string {
	width := make([]int, len(t.head))
	lines := append([][]string{t.head}, t.rows...)
	for _, line := range lines {
		for i, text := range line {
			width[i] = max(width[i], utf8.RuneCountInString(text), 3)
		}
	}
	var b strings.Builder
	for n, line := range lines {
		for i, text := range line {
			fmt.Fprintf(&b, "| %-*s ", width[i], text)
		}
		b.WriteString("|\n")
		if n == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// column is a column of a table with a row for each result.
type column struct {
	head string
	cell func(results, result) string
}

// plain is the column of a figure.
func plain(name string) column { return column{name, show(name, number)} }

// duration is the column of a figure in µs.
func duration(name string) column { return column{name, show(name, micros)} }

// unlessZero is the column of a figure that is 0 in most runs. Then the table does not have it.
func unlessZero(name string) column {
	return column{name, func(_ results, r result) string {
		if n := r.figures[name]; n > 0 {
			return number(n)
		}
		return "–"
	}}
}

func show(name string, format func(float64) string) func(results, result) string {
	return func(_ results, r result) string {
		if v, ok := r.figures[name]; ok {
			return format(v)
		}
		return "–"
	}
}

// divided is the column with a figure of mine, divided by the same figure of its. Both get the result of
// the row.
func divided(head, figure string, mine, its func(results, result) (result, bool)) column {
	return column{head, func(rs results, r result) string {
		a, ok1 := mine(rs, r)
		b, ok2 := its(rs, r)
		if ok1 && ok2 && a.library != b.library {
			if s, ok := ratio(a, b, figure); ok {
				return interval(s)
			}
		}
		return "–"
	}}
}

// itself and of select a result for divided: the row, and the one of a library at the same point.
func itself(_ results, r result) (result, bool) { return r, true }

func of(library string) func(results, result) (result, bool) {
	return func(rs results, r result) (result, bool) { return rs.get(r.scenario, r.point, library) }
}

// bound marks a figure that is a lower bound, because a trial had not ended at the end of the run.
func bound(name string) func(results, result) string {
	return func(_ results, r result) string {
		if r.figures[untold] > 0 {
			return "≥ " + brief(r.get(name))
		}
		return brief(r.get(name))
	}
}

var (
	scenarioColumn = column{"scenario", func(_ results, r result) string { return r.scenario }}
	settingColumn  = column{"setting", func(_ results, r result) string { return r.point }}
	libraryColumn  = column{"library", func(_ results, r result) string { return r.library }}
)

// quorumShare is the smallest share, of several processes only.
var quorumShare = column{leastShare, func(_ results, r result) string {
	if _, ok := r.figures[tripsPerGrant]; !ok {
		return "–"
	}
	return brief(r.get(leastShare))
}}

// columns has the columns of the tables by the kinds of their scenarios.
var columns = map[kind][]column{
	lockKind: {
		scenarioColumn, libraryColumn, plain(ops), divided("holdfast ÷ it", ops, of(holdfastName), itself), duration(p50), duration(p99),
		plain(commands), plain(redisCPU), plain(clientCPU), plain(unserved), unlessZero(violations),
	},
	quorumKind: {
		scenarioColumn, settingColumn, libraryColumn, plain(ops), divided("holdfast ÷ it", ops, of(holdfastName), itself), duration(p50), duration(p99),
		plain(commands), plain(redisCPU), plain(clientCPU), plain(tripsPerGrant), quorumShare, plain(unserved), unlessZero(violations),
	},
	rateKind: {
		settingColumn, libraryColumn, plain(ops), divided("holdfast ÷ it", ops, of(holdfastName), itself), plain(ofRate), duration(p50), duration(p99), plain(perQueue),
		plain(commands), plain(redisCPU), plain(clientCPU), plain(unserved),
	},
	memoryKind: {libraryColumn, plain(goroutinesPerLease), plain(bytesPerLease), plain(bytesPerKey), unlessZero(keysLeft), unlessZero(unserved)},
	waitKind:   {libraryColumn, plain(bytesPerWaiter), plain(commandsPerS)},
	httpKind: {
		settingColumn, libraryColumn, plain(ops), duration(p50), duration(p99), divided("p99 ÷ quiet", p99, itself, of(quietName)),
		plain(hotServed), plain(hotRefused), plain(hotPresent), unlessZero(violations),
	},
	asynqKind: {
		settingColumn, libraryColumn, plain(othersDone), plain(hotDone), plain(backlogDone), plain(deliveries), plain(commandsPerHot), plain(notCompleted), unlessZero(violations),
	},
	killKind: {
		libraryColumn, plain(killCount), plain(runsKilled), plain(triggerCount), plain(runCount), plain(lostTriggers), plain(staleRuns), plain(sideBySide), plain(strayKeys),
	},
	faultKind: {
		libraryColumn,
		{togetherMedian, bound(togetherMedian)},
		{togetherWorst, bound(togetherWorst)},
		{toldMedian, show(toldMedian, brief)},
		{grantedWorst, show(grantedWorst, brief)},
		unlessZero(neverB),
	},
}

// rows returns the table of part, the results of one kind. A column without a figure is left out.
func rows(k kind, all, part results) table {
	t := table{rows: make([][]string, len(part))}
	for _, c := range columns[k] {
		cells, empty := make([]string, len(part)), true
		for i, r := range part {
			cells[i] = c.cell(all, r)
			empty = empty && cells[i] == "–"
		}
		if empty {
			continue
		}
		t.head = append(t.head, c.head)
		for i, text := range cells {
			t.rows[i] = append(t.rows[i], text)
		}
	}
	return t
}

// pivot returns a table with a row for each library and a column for each point of s.
func pivot(s scenario, rs results, cell func(result) string) table {
	t := table{head: []string{"library"}}
	for _, p := range s.points {
		t.head = append(t.head, p.Name)
	}
	for _, name := range s.libraries {
		row, measured := []string{name}, false
		for _, p := range s.points {
			text := "–"
			if r, ok := rs.get(s.name, p.Name, name); ok {
				text, measured = cell(r), true
			}
			row = append(row, text)
		}
		if measured {
			t.rows = append(t.rows, row)
		}
	}
	return t
}

// interval formats the median and its confidence interval.
func interval(s benchmath.Summary) string {
	if s.Lo == s.Hi || math.IsInf(s.Lo, 0) || math.IsInf(s.Hi, 0) {
		return number(s.Center)
	}
	return fmt.Sprintf("%s [%s, %s]", number(s.Center), number(s.Lo), number(s.Hi))
}

// number formats v with about three significant digits, and commas.
func number(v float64) string {
	switch {
	case v == math.Trunc(v) && v < 100:
		return fmt.Sprintf("%.0f", v)
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
