package main

import (
	"cmp"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// environment describes the machine and the programs of a run. It does not name the machine.
type environment struct {
	goVersion, redis string
	cpus             int
	versions         map[string]string // of modules
	date             time.Time
	load             []string // load averages at the start and at the end, if the system has them
}

func newEnvironment(redis string) environment {
	e := environment{goVersion: runtime.Version(), redis: redis, cpus: runtime.NumCPU(), versions: map[string]string{}, date: time.Now()}
	e.readLoad()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			e.versions[m.Path] = m.Version
		}
	}
	return e
}

// readLoad adds the load averages of the last 1, 5 and 15 minutes. Only Linux has the file.
func (e *environment) readLoad() {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(b)); len(f) >= 3 {
			e.load = append(e.load, strings.Join(f[:3], " "))
		}
	}
}

func (e environment) machine() string {
	return fmt.Sprintf("%s, Redis %s on the same machine, %d CPUs, %s/%s", e.goVersion, e.redis, e.cpus, runtime.GOOS, runtime.GOARCH)
}

func (e environment) String() string {
	s := fmt.Sprintf("Measured on %s: %s", e.date.Format(time.DateOnly), e.machine())
	if len(e.load) == 2 {
		s += fmt.Sprintf(", load averages %s before and %s after", e.load[0], e.load[1])
	}
	return s + "."
}

// versionOf returns the release that was measured.
func (e environment) versionOf(l library) string {
	if l.module == "" {
		return ""
	}
	return " " + strings.TrimSpace(l.module+" "+e.versions[l.module]) + ","
}

// conditions describes the measurement in the chart.
func (r report) conditions() string {
	return fmt.Sprintf("%s, median of %s", r.environment.machine(), plural(r.options.rounds, "round"))
}

// section is a part of a page: the table of the scenarios of one kind.
type section struct {
	kind        kind
	title, note string
}

var sections = []section{
	{lockKind, "Lock and unlock", "*holdfast ÷ it* divides the throughputs. p50 and p99 describe the wait from a call to its grant. A call that still waits at the end of the run is included with its wait until then, " +
		"which favors libraries that let calls starve. Commands are those that the clients sent. CPU times include the unlock. An unserved caller got no lock in the run."},
	{quorumKind, "Locks on a majority of servers", "All leases are 8 s. The servers and the clients share the CPUs; Redis µs are of all servers. *Round trips/grant* is the median time from a grant to the next one, of any process, divided by 10 ms. " +
		"*Smallest share* has the grants of the process with the fewest, divided by the mean."},
	{rateKind, "Calls at a rate", "p50 and p99 describe the wait from a call to its begin. *p99 ÷ queue/rate* divides the p99 by the time in which the rate lets all 64 goroutines begin once, which is the longest wait in turn."},
	{memoryKind, "Memory of held keys", "Client bytes are heap and stacks. Redis bytes do not include the buffers of connections."},
	{waitKind, "Memory and commands of waiters", "Not included is the goroutine of the waiter itself."},
	{httpKind, "A hot key at an HTTP server", "p50 and p99 describe whole requests of the 100 clients; handlers take 20 to 50 ms. The last columns describe the hot key. *+quiet* is without the 1,000 clients of the hot key. Of these, 64 may wait (the default of httpmw), and with *+unbounded* all of them."},
	{asynqKind, "A hot account in the workers of asynq", "Each process has 10 workers, which check for tasks after TaskCheckInterval. A task takes 50 ms, so the work of the hot account takes 10 s. The commands of the other tasks are included."},
	{killKind, "Workers that are killed", "holdfast is asynq with asynqmw.Latest and Parking; bullmq is BullMQ with keepLastIfActive, which fails a job that stalls twice, unless maxStalledCount is greater (*+careful*: 1,000). " +
		"Four workers with 10 goroutines each are killed with SIGKILL when a run begins, when its value is written, or at a random moment. *Last trigger lost* counts projections whose last value is too old. *Keys left for ever* name a task or a projection, and have no TTL."},
}

// resultsPage is RESULTS.md, or empty if no scenario without faults was measured.
func (r report) resultsPage() string {
	var b strings.Builder
	for _, s := range sections {
		r.section(&b, s)
	}
	if b.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("# Measured\n\nWritten by `go -C bench run . -write .`. %s Each run of a lock took %v, and its figures are the median of %s, in which the libraries ran in a changing order.\n\n", r.environment, r.options.window, plural(r.options.rounds, "round")) +
		"Figures vary with the machine and its load, so compare ratios. Each divides two runs of the same round; its 95 % confidence interval is in brackets.\n\n" +
		"## Libraries\n\n" + r.libraries() + b.String() + r.ending(func(s scenario) bool { return s.kind != faultKind })
}

func (r report) libraries() string {
	var b strings.Builder
	for _, l := range libraries {
		if slices.ContainsFunc(r.results, func(one result) bool { return baseName(one.library) == l.name }) {
			fmt.Fprintf(&b, "- **%s**:%s %s\n", l.name, r.environment.versionOf(l), l.settings)
		}
	}
	return b.String()
}

func (r report) section(b *strings.Builder, sec section) {
	var part results
	var about []string
	for _, s := range scenarios {
		before := len(part)
		for _, one := range r.results {
			if one.scenario == s.name && s.kind == sec.kind {
				part = append(part, one)
			}
		}
		if len(part) > before {
			about = append(about, fmt.Sprintf("- **%s**: %s\n", s.name, s.about))
		}
	}
	if len(part) > 0 {
		fmt.Fprintf(b, "\n## %s\n\n%s\n%s\n%s\n", sec.title, strings.Join(about, ""), rows(sec.kind, r.results, part), sec.note)
	}
}

// ending has the marks of some scenarios, and the failures.
func (r report) ending(in func(scenario) bool) string {
	parts := []string{"\n## Targets\n\n", cmp.Or(marksText(r.results, in), "None was measured.\n")}
	for _, f := range r.failures {
		parts = append(parts, "- failed: "+f+"\n")
	}
	return strings.Join(parts, "")
}

const (
	contendersText = "Every lease is 3 s. rueidislock and holdfast renew it and cancel the handler's ctx. redsync and redislock leave that to the caller. Here they have the watchdog of redislock's README: " +
		"a goroutine that renews every third of the lease, and cancels the handler's ctx if that fails. With *+timeouts*, the go-redis client has `ContextTimeoutEnabled`. " +
		"With *+careful*, each renewal and release also has a ctx of 1 s; no README recommends that, but a careful user may do it. redislock tries every 100 ms. [RESULTS.md](RESULTS.md#libraries) has the other settings.\n"
	faultsPreface = "A and B are two clients of one redis-server. Only A's connections have faults. Each of 16 or 8 rounds has its own clients and key. " +
		"With the defaults of go-redis a read may take 5 s, is tried up to 4 times, and ignores the deadline of a ctx. Only differences of a second or more are meaningful.\n\n"
	partitionText = "A has the key, and B waits for it. At a random moment in the first 2.7 s after A's grant, A's network begins to lose all data in both directions, and no connection is closed. This is the silence. " +
		"A's handler ends when its ctx is canceled. A and B are two at once from B's grant to that end. A negative value says that A was canceled before B had the key, as it should be. ≥ marks handlers that were not canceled within the run of 30 s."
	lostText = "Redis executes A's command, and the reply is lost. A's connection then stays open and silent, or it is cut. New connections work.\n\n" +
		"- **acquire**: B's call starts when A's reply is lost. The key is stuck until one of the two handlers starts.\n" +
		"- **renew**: B waits, and A's handler works for 10 s or until its ctx is canceled. The key is stuck from that end to B's grant.\n" +
		"- **release**: B waits. The key is stuck from A's call to B's grant.\n\n" +
		"For how long was the key stuck, in s (worst of the rounds)? A library that polls adds up to one of its intervals.\n\n"
	saidText = "\nWhat did A's caller get, and after how many s (median)? *key*: the key. *done*: no error. *kept* and *canceled*: the handler's ctx.\n\n"
)

// faultsPage is FAULTS.md, or empty if no scenario with faults was measured.
func (r report) faultsPage() string {
	var b strings.Builder
	if part := r.of("partition"); len(part) > 0 {
		fmt.Fprintf(&b, "\n## partition: a holder's network loses all data\n\n%s\n\n%s", partitionText, rows(faultKind, r.results, part))
	}
	if len(r.of("lost-answer")) > 0 {
		s, _ := scenarioNamed("lost-answer")
		fmt.Fprintf(&b, "\n## lost-answer: the reply to a command is lost\n\n%s%s%s%s", lostText, pivot(s, r.results, result.stuck),
			saidText, pivot(s, r.results, func(r result) string { return r.said }))
	}
	if b.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("# Two at once: what networks do to locks\n\nWritten by `go -C bench run . -write .`. %s\n\n", r.environment) +
		faultsPreface + contendersText + b.String() + r.ending(func(s scenario) bool { return s.kind == faultKind })
}

// of returns the results of a scenario.
func (r report) of(scenario string) (part results) {
	for _, one := range r.results {
		if one.scenario == scenario {
			part = append(part, one)
		}
	}
	return part
}

// stuck is the longest time for which the key was stuck or, if two were inside, the time for which
// they were.
func (r result) stuck() string {
	switch {
	case r.figures[togetherWorst] > 0:
		return "two at once " + brief(r.get(togetherWorst))
	case r.figures[neverB] > 0:
		return "≥ " + brief(r.get(stuckWorst))
	}
	return brief(r.get(stuckWorst))
}
