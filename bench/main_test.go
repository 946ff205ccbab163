package main

import (
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/bench/hotkey"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// TestMain runs a child process of the benchmark if the environment asks for one. TestSmoke starts
// them.
func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(childMain(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// A quantile of the histogram differs from that of the sorted waits by at most the width of a
// bucket, over the whole range.
func TestHistogramQuantiles(t *testing.T) {
	var h histogram
	var sorted []time.Duration
	for range 20_000 {
		d := time.Duration(rand.Int64N(1 << rand.IntN(35)))
		h.add(d)
		sorted = append(sorted, d)
	}
	slices.Sort(sorted)
	var w waits
	w.mergeHistogram(&h)
	for _, q := range []float64{0.01, 0.5, 0.9, 0.99, 1} {
		want := sorted[max(int(q*float64(len(sorted))+0.5), 1)-1]
		got := w.quantile(q)
		if diff := max(got-want, want-got); float64(diff) > 0.02*float64(want)+1 {
			t.Errorf("quantile %v: got %v, sorted %v", q, got, want)
		}
	}
	if w.Max != sorted[len(sorted)-1] {
		t.Errorf("max: got %v, want %v", w.Max, sorted[len(sorted)-1])
	}
}

// Buckets have no gaps, and the last one also has all longer waits.
func TestHistogramBuckets(t *testing.T) {
	for b := 1; b < allBuckets; b++ {
		if got := bucketOf(bucketMiddle(b)); got != b {
			t.Fatalf("the middle of bucket %d, %v, is in bucket %d", b, bucketMiddle(b), got)
		}
	}
	if got := bucketOf(time.Hour); got != allBuckets-1 {
		t.Errorf("an hour is in bucket %d", got)
	}
}

// merge adds the waits of several processes. The quantile of no waits is 0.
func TestWaitsMerge(t *testing.T) {
	var a, b, none waits
	a.add(time.Millisecond)
	b.add(time.Second)
	none.merge(a)
	none.merge(b)
	if got := none.quantile(0.5); bucketOf(got) != bucketOf(time.Millisecond) || none.Max != time.Second {
		t.Errorf("median %v, max %v, want 1ms and 1s", got, none.Max)
	}
	if got := (&waits{}).quantile(0.5); got != 0 {
		t.Errorf("got %v without waits, want 0", got)
	}
}

// The witness finds two workers inside one key, also through two mappings of its file. The end of
// the second one does not hide the first.
func TestWitness(t *testing.T) {
	path, err := newWitnessFile(2)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	a, err := openWitness(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := openWitness(path)
	if err != nil {
		t.Fatal(err)
	}
	if !a.enter(0, 0) || !b.enter(1, 0) {
		t.Fatal("each worker is alone in its key, and enter reports a violation")
	}
	if b.enter(0, 0) || b.violations.Load() != 1 {
		t.Fatal("two workers are inside, and enter reports no violation")
	}
	a.leave(0, 0)
	if !b.enter(0, 0) {
		t.Error("the key is empty, and enter reports a violation")
	}
}

// The witness accepts as many workers at the same time as the limit. One more is a violation, and
// so is an exclusive section together with shares.
func TestWitnessLimit(t *testing.T) {
	path, err := newWitnessFile(1)
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	w, err := openWitness(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		limit int
		fits  bool
	}{{2, true}, {2, true}, {2, false}, {0, false}, {lockcore.Unlimited, true}} {
		if got := w.enter(0, step.limit); got != step.fits {
			t.Errorf("limit %d: got %v", step.limit, got)
		}
	}
	for range 3 {
		w.leave(0, 2)
	}
	if !w.enter(0, 0) || w.enter(0, lockcore.Unlimited) || w.violations.Load() != 3 {
		t.Errorf("an exclusive section: %d violations, want 3", w.violations.Load())
	}
}

// The error of parseOptions names all wrong flags, and the allowed values.
func TestOptionsProblems(t *testing.T) {
	_, err := parseOptions([]string{"-scenario", "seq,sqe", "-only", "redlock", "-for", "1ms", "-rounds", "0", "-keys", "0", "more"}, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"sqe"`, "multi-hold", `"redlock"`, "rueidislock", "-for is 1ms", "-rounds is 0", "-keys is 0", `"more"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not say %s", err, want)
		}
	}
}

// The default run has all scenarios except those that are named only. -only also selects the variants
// of a library, and -keys sets the keys of memory. -list explains all of them.
func TestOptions(t *testing.T) {
	o, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		if runs := slices.ContainsFunc(o.scenarios, func(other scenario) bool { return other.name == s.name }); runs == s.named {
			t.Errorf("%s runs by default: %v", s.name, runs)
		}
	}
	o, err = parseOptions([]string{"-scenario", "http-hot,memory", "-only", "holdfast", "-keys", "7"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if cells := o.scenarios[0].cells(o); len(cells) != 1 || cells[0].point.Workers != 7 || cells[0].point.Kind != memoryKind {
		t.Errorf("memory: %+v", cells)
	}
	if cells := o.scenarios[1].cells(o); len(cells) != 6 {
		t.Errorf("http-hot: %+v", cells)
	}
	var out strings.Builder
	if err := bench(t.Context(), []string{"-list"}, &out, io.Discard); err != nil {
		t.Fatal(err)
	}
	for _, want := range append(scenarioNames(), libraryNames()...) {
		if !strings.Contains(out.String(), want+" ") {
			t.Errorf("-list does not explain %s", want)
		}
	}
}

// newServer starts a redis-server that ends with the test, or skips the test.
func newServer(t *testing.T) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
	srv, err := startServer(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.close)
	return srv
}

// measured runs bench with args, for a short time and once.
func measured(t *testing.T, args ...string) report {
	t.Helper()
	newServer(t) // skips the test without a redis-server
	o, err := parseOptions(append(args, "-for", "200ms", "-rounds", "1"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	r, err := measureAll(t.Context(), o, t.Output())
	if err := errors.Join(err, r.broken); err != nil {
		t.Fatal(err)
	}
	return r
}

// A run of eight scenarios gives plausible figures, and writes the page and the chart.
func TestSmoke(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := measured(t, "-scenario", "seq,hot,multi,multi-hold,shared,limited,wait,http-hot", "-only", "floor,redisson-read,holdfast", "-write", dir)
	if n := len(r.results); n != 4*2+2+1+2+6 {
		t.Fatalf("%d results", n)
	}
	for _, one := range r.results {
		if s, _ := scenarioNamed(one.scenario); s.kind == waitKind || one.library == unboundedName || one.point == noLimit { // the last two may complete no request in such a short run
			continue
		}
		if one.get(ops) < 1 || one.get(p99) < one.get(p50) || one.get(commands) <= 0 || one.get(allCPU) <= 0 {
			t.Errorf("implausible: %+v", one)
		}
	}
	if err := r.write(io.Discard); err != nil {
		t.Fatal(err)
	}
	checkXML(t, readFile(t, filepath.Join(dir, "chart.svg")))
	if md := readFile(t, filepath.Join(dir, "RESULTS.md")); !strings.Contains(md, "## Lock and unlock") {
		t.Errorf("RESULTS.md:\n%s", md)
	}
	if _, err := os.Stat(filepath.Join(dir, "FAULTS.md")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("FAULTS.md without a scenario with faults: %v", err)
	}
}

// Calls begin at the rate, and below the rate with less than a command each.
func TestRatesScenario(t *testing.T) {
	t.Parallel()
	results := measured(t, "-scenario", "rates").results
	if len(results) != 4 {
		t.Fatalf("%d results", len(results))
	}
	for _, r := range results {
		if !(r.get(ops) >= 1) || r.get(p99) < r.get(p50) || !(r.get(commands) > 0) || !(r.get(redisCPU) >= 0) || r.get(violations) != 0 {
			t.Errorf("implausible: %+v", r)
		}
		if r.point == atRate && !(r.get(ofRate) <= 1.5 && r.get(perQueue) > 0) { // a run has at most N/5 + Burst begins
			t.Errorf("implausible: %+v", r)
		}
		if own := r.library == holdfastName; r.point == belowRate && own != (r.get(commands) < 0.5) {
			t.Errorf("%s has %.2f commands a call", r.library, r.get(commands))
		}
	}
}

// A held key takes memory in Redis and in the process, and leaves nothing after its release.
func TestMemoryScenario(t *testing.T) {
	t.Parallel()
	for _, r := range measured(t, "-scenario", "memory", "-keys", "2000", "-only", "floor,holdfast").results {
		if perKey := r.get(bytesPerKey); r.get(keysLeft) != 0 || r.get(unserved) != 0 || perKey < 50 || perKey > 1000 || !(r.get(bytesPerLease) >= 0) {
			t.Errorf("implausible: %+v", r)
		}
	}
}

// Under each policy two processes complete the tasks. With a lock the tasks of an account run one at a
// time, so they take as long as the work of the account.
func TestTasksScenario(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	srv := newServer(t)
	s, _ := scenarioNamed("asynq")
	for _, policy := range policies {
		p := s.points[0]
		p.Procs, p.Kind = 2, s.kind
		r, err := run(t.Context(), srv, s, cell{p, policy}, options{})
		if err := errors.Join(err, r.doubt()); err != nil {
			t.Fatal(err)
		}
		alone := policy != hotkey.None
		if r.get(notCompleted) != 0 || r.get(deliveries) < 1 || (r.get(hotDone) >= 10) != alone || (r.get(commandsPerHot) > 0) != alone || !(r.get(othersDone) > 0.5) {
			t.Errorf("%s: %+v", policy, r)
		}
	}
}

// Without kills, the processes of asynqmw.Latest rebuild all projections, and leave no key.
func TestKillsScenario(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	newServer(t) // skips the test without a redis-server
	var r result
	if err := r.runKills(t.Context(), cell{point{}, holdfastName}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{killCount, runsKilled, lostTriggers, staleRuns, sideBySide, strayKeys} {
		if r.get(name) != 0 {
			t.Errorf("%s: %v", name, r.get(name))
		}
	}
	if r.get(runCount) < 1 || r.get(runCount) > r.get(triggerCount) {
		t.Errorf("implausible: %v", r.figures)
	}
}

func checkXML(t *testing.T, s string) {
	t.Helper()
	for dec := xml.NewDecoder(strings.NewReader(s)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, s)
		}
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
