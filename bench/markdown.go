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
		fmt.Fprintf(&b, "Each of these libraries never had two holders at once, and served every caller at most %v s later than holdfast. In partition, that time counts from the silence, and otherwise from the moment at which the key was stuck. A library that returned an error to A's caller, or canceled A's handler, is listed only if holdfast did so too:\n\n", noticeableS)
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
	b.WriteString(", in which the libraries ran in a changing order. Scenarios that report counts, such as waiters or held leases, have a single run, and most of these runs are longer. ")
	b.WriteString("Absolute figures vary with the machine and its load, so only the ratios are meaningful. A ratio compares two runs of the same round, because these are close together in time. ")
	b.WriteString("The tables show the median of the ratios of all rounds, with the 95 % bootstrap interval in brackets.\n\n")
	b.WriteString("| library | version | settings |\n|---|---|---|\n")
	for _, l := range r.settings() {
		fmt.Fprintf(b, "| %s | %s | %s |\n", l.name, r.environment.versionOf(l), l.settings)
	}
	b.WriteString("\n" + legend + "\n")
}

func (r report) faultsPreface(b *strings.Builder) {
	b.WriteString("# Two at once: what networks do to locks\n\n")
	fmt.Fprintf(b, "Written by `go -C bench run . -scenario partition,lost-answer -md FAULTS.md` on %s: %s. ", time.Now().Format(time.DateOnly), r.environment)
	b.WriteString("A and B are two clients of one redis-server, which has no faults. Only A's connections have faults. Every lease is 3 s. Each round has separate clients ")
	b.WriteString("and a separate key. All rounds run at the same time, because they mostly wait. Unless the table says otherwise, the clients have the defaults of go-redis and of rueidis. ")
	b.WriteString("With the defaults of go-redis a read may take 5 s, is tried up to 4 times, and ignores the deadline of a ctx. Only differences of about a second or more are meaningful.\n")
}

const legend = "p50, p99 and max describe the wait from a call to its grant. They include the calls that were granted in the run, " +
	"and the calls that still waited at its end, which count with their wait until then. So no wait is longer than the run, " +
	"which favors libraries that let calls starve. Commands and round trips are those that the clients wrote to their connections. " +
	"In a run of 10 s or more, a caller is unserved if it waited for more than 10 s. In a shorter run, it is unserved if it was " +
	"never served. A violation is a section that began while the key already had as many sections inside as allowed. " +
	"It is detected in memory that all processes share.\n"

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
