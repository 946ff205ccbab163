package main

import (
	"fmt"
	"strings"
	"time"
)

// markdown is the report as a Markdown file.
func (r report) markdown() string {
	var b strings.Builder
	if r.options.onlyFaults() {
		r.faultsPreface(&b)
	} else {
		r.preface(&b)
	}
	for _, sh := range r.sheets() {
		sh.markdown(&b)
	}
	for _, f := range r.failures {
		fmt.Fprintf(&b, "\nNot measured: %s\n", f)
	}
	if lines := asGood(r.cells); len(lines) > 0 {
		b.WriteString("\n## Libraries that are as good\n\n")
		fmt.Fprintf(&b, "These libraries never had two holders at once and served every caller, at most %v s later than holdfast (from the silence; otherwise from the moment at which the key was stuck). No caller or handler of A got an error if none of holdfast's did:\n\n", noticeableS)
		for _, l := range lines {
			fmt.Fprintf(&b, "- %s\n", l)
		}
	}
	if r.options.onlyFaults() {
		return b.String()
	}
	b.WriteString("\n## Where another library is ahead\n\n")
	losses := losses(r.cells)
	if len(losses) == 0 {
		b.WriteString("Nowhere in this run.\n")
	}
	for _, l := range losses {
		fmt.Fprintf(&b, "- %s\n", l)
	}
	return b.String()
}

func (r report) preface(b *strings.Builder) {
	b.WriteString("# Measured\n\n")
	b.WriteString("Written by `go -C bench run . -md FILE`. ")
	fmt.Fprintf(b, "%s. Each run measured for %v. Every cell is the median of %s", r.environment, r.options.window, plural(r.options.rounds, "round"))
	b.WriteString(", in which the libraries ran in a changing order. The scenarios that count waiters or held leases have one longer run. ")
	b.WriteString("Machines are noisy, so only the ratios are meaningful. A ratio is computed in each round, because the runs of one round are close together in time. ")
	b.WriteString("The tables have its median over the rounds and the 95 % bootstrap interval in brackets.\n\n")
	b.WriteString("| library | version | settings |\n|---|---|---|\n")
	for _, l := range r.settings() {
		fmt.Fprintf(b, "| %s | %s | %s |\n", l.name, r.environment.versionOf(l), l.settings)
	}
	b.WriteString("\n" + legend + "\n")
}

func (r report) faultsPreface(b *strings.Builder) {
	b.WriteString("# Two at once: what networks do to locks\n\n")
	fmt.Fprintf(b, "Written by `go -C bench run . -scenario partition,lost-answer -md FAULTS.md` on %s: %s. ", time.Now().Format(time.DateOnly), r.environment)
	b.WriteString("A and B are two clients of one redis-server, which works all the time. Only A's connections have faults. Every lease is 3 s. Each round has separate clients ")
	b.WriteString("and a separate key. All rounds run at the same time, because they only wait. The clients have the defaults of go-redis (a read may take 5 s and is tried up to 4 times, and it ignores the deadline of a ctx) ")
	b.WriteString("and of rueidis, unless the table says otherwise. Only differences of about a second or more are meaningful.\n")
}

const legend = "p50, p99 and max are of the wait from the call to the grant. They include every call that was granted in the run, " +
	"and every call that still waited at its end, with its wait so far. So no wait looks longer than the run, which favors " +
	"libraries that let calls starve. Commands and round trips are those that the clients wrote to their connections. " +
	"Unserved callers waited for more than 10 s or, in a shorter run, were never served in it. Violations: more sections " +
	"inside the same key at once than allowed, detected in memory that all processes share.\n"

func (sh sheet) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s: %s\n\n", sh.name, sh.title)
	fmt.Fprintf(b, "| %s |\n|%s\n", strings.Join(sh.head, " | "), strings.Repeat("---|", len(sh.head)))
	for _, row := range sh.rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
	}
	for _, n := range sh.notes {
		fmt.Fprintf(b, "\n%s\n", n)
	}
}

// virtue is a figure for which less is better.
type virtue struct {
	name string
	cost func(result) float64
}

var virtues = []virtue{
	{"µs per operation", func(r result) float64 { return 1e6 / r.OpsPerS }},
	{"p50 in µs", func(r result) float64 { return r.P50US }},
	{"p99 in µs", func(r result) float64 { return r.P99US }},
	{"commands", func(r result) float64 { return r.CmdsPerOp }},
	{"Redis CPU µs", func(r result) float64 { return r.RedisCPUPerOp }},
	{"client CPU µs", func(r result) float64 { return r.ClientCPUPerOp }},
	{"allocations", func(r result) float64 { return r.AllocsPerOp }},
	{"commands per lease and s", named(cmdsPerLeaseS)},
	{"bytes per lease", named(bytesPerLease)},
	{"commands per process and s", named(cmdsPerProcessS)},
	{"bytes per waiter", named(bytesPerWaiter)},
}

const noticeable = 1.02 // a smaller difference is noise

// losses lists, for every cell of another library, the figures in which it is better than holdfast.
func losses(rs results) []string {
	var lines []string
	for _, r := range rs {
		mine, ok := rs.get(r.Scenario, r.Point, holdfastName)
		if l, _ := libraryNamed(r.Library); !ok || l.limit || r.Library == holdfastName || l.variant() {
			continue
		}
		var better []string
		for _, v := range virtues {
			if own, its := v.cost(mine), v.cost(r); own > noticeable*its {
				better = append(better, fmt.Sprintf("%s %s against %s", v.name, number(its), number(own)))
			}
		}
		if len(better) > 0 {
			where := strings.TrimSpace(r.Scenario + " " + r.Point)
			lines = append(lines, fmt.Sprintf("%s, %s: %s", where, r.Library, strings.Join(better, ", ")))
		}
	}
	return lines
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
