package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// sheet is a table.
type sheet struct {
	head []string
	rows [][]string
}

func (s sheet) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n| %s |\n|%s\n", strings.Join(s.head, " | "), strings.Repeat("---|", len(s.head)))
	for _, row := range s.rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
	}
	return b.String()
}

// column is a column of the table of all results.
type column struct {
	head string
	show bool
	cell func(rounds) string
}

// figures returns the table of all results. Each of them has at least one round.
func figures(all []rounds) sheet {
	number := func(format string, get func(*result) float64) func(rounds) string {
		return func(rs rounds) string { return spread(format, rs.values(get)) }
	}
	backlog := has(all, func(l load) bool { return l.backlog > 0 })
	columns := []column{
		{"processes", true, func(rs rounds) string { return fmt.Sprint(rs[0].procs) }},
		{"TaskCheckInterval", true, func(rs rounds) string { return rs[0].check.String() }},
		{"hot accounts", true, func(rs rounds) string { return fmt.Sprintf("%d, %d tasks", rs[0].hot, rs[0].hotTasks) }},
		{"hold", true, func(rs rounds) string { return rs[0].hold.String() }},
		{"backlog", backlog, func(rs rounds) string { return rs[0].backlogText() }},
		{"policy", true, func(rs rounds) string { return rs[0].policy }},
		{"others done", true, rounds.othersTime},
		{"hot accounts done", true, rounds.hotTime},
		{"the median one", has(all, func(l load) bool { return l.hot > 1 }), rounds.medianAccount},
		{"backlog done meanwhile", backlog, number("%.0f", func(r *result) float64 { return float64(r.backlogDone) })},
		{"pure work of one", true, func(rs rounds) string { return seconds(rs[0].work()) }},
		{"least possible", true, func(rs rounds) string { return seconds(rs[0].least()) }},
		{"deliveries per hot task", true, number("%.2f", func(r *result) float64 { return r.delivered })},
		{"lock commands per hot task", true, number("%.1f", func(r *result) float64 { return r.sent })},
		{"with those in scripts", true, number("%.1f", func(r *result) float64 { return r.executed })},
		{"asynq's, with those in scripts", true, number("%.1f", func(r *result) float64 { return r.queue })},
		{"faults", true, func(rs rounds) string { return rs.wrong().String() }},
	}
	var s sheet
	s.rows = make([][]string, len(all))
	for _, c := range columns {
		if c.show {
			s.head = append(s.head, c.head)
			for i, rs := range all {
				s.rows[i] = append(s.rows[i], c.cell(rs))
			}
		}
	}
	return s
}

func has(all []rounds, is func(load) bool) bool {
	return slices.ContainsFunc(all, func(rs rounds) bool { return is(rs[0].load) })
}

func (l load) backlogText() string {
	if l.standing {
		return fmt.Sprint(l.backlog, ", standing")
	}
	return fmt.Sprint(l.backlog)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// environment describes the machine and the versions of a measurement.
func environment(redis string) string {
	s := fmt.Sprintf("%s, asynq 0.26.0, Redis %s on the same machine, %d CPUs, %s/%s", runtime.Version(), redis, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	if b, err := os.ReadFile("/proc/loadavg"); err == nil { // only Linux has it
		s += ", load averages " + strings.Join(strings.Fields(string(b))[:3], " ")
	}
	return s
}
