package main

import (
	"encoding/json"
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
	_, err := parseOptions([]string{"-scenario", "seq,sqe", "-only", "redlock", "-for", "1ms", "-rounds", "0", "more"}, io.Discard)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`"sqe"`, "multi-hold", `"redlock"`, "rueidislock", "-for is 1ms", "-rounds is 0", `"more"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: does not say %s", err, want)
		}
	}
}

// The default run has all scenarios except memory and those with a delay, and takes less than 45
// minutes. -only also selects the variants of a library.
func TestOptionsDefaults(t *testing.T) {
	o, err := parseOptions(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	onlyNamed := 0
	for _, s := range scenarios {
		if s.delay > 0 || s.memory() {
			onlyNamed++
		}
	}
	if len(o.scenarios) != len(scenarios)-onlyNamed || o.estimate() > 45*time.Minute {
		t.Errorf("%d scenarios in %v", len(o.scenarios), o.estimate())
	}
	o, err = parseOptions([]string{"-scenario", "observer", "-only", "holdfast"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := o.librariesOf(o.scenarios[0]); !slices.Equal(got, []string{holdfastName, tracedName}) {
		t.Errorf("got %v", got)
	}
}

// The workers of all processes together are the workers of the point.
func TestPointWorkers(t *testing.T) {
	for _, p := range grid() {
		sum := 0
		for i := range p.Procs {
			sum += p.workersOf(i)
		}
		if sum != p.Workers {
			t.Errorf("%s: %d workers", p.Name, sum)
		}
	}
}

// A run of nine scenarios gives plausible cells, tables and files. It needs a redis-server.
func TestSmoke(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server")
	}
	t.Parallel()
	dir := t.TempDir()
	md, svg := filepath.Join(dir, "RESULTS.md"), filepath.Join(dir, "results.svg")
	var out strings.Builder
	args := []string{"-scenario", "seq,hot,multi,shared,limited,rw,share-pair,http-replay,http-hot", "-only", "floor,get,redisson-read,holdfast", "-for", "200ms", "-rounds", "1", "-json", "-md", md, "-svg", svg}
	if err := bench(t.Context(), args, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 27 {
		t.Fatalf("%d lines, want 27:\n%s", len(lines), out.String())
	}
	for _, line := range lines {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Library == unboundedName { // in such a short run it may complete no operation
			continue
		}
		if r.OpsPerS < 1 || r.P99US < r.P50US || r.MaxUS < r.P99US || r.CmdsPerOp <= 0 || r.Violations != 0 {
			t.Errorf("implausible: %s", line)
		}
		if want := map[string]int{"multi": 4, "limited": 8, "rw": 4}[r.Scenario]; want > 0 && len(r.Shares) != want {
			t.Errorf("%d shares, want %d: %s", len(r.Shares), want, line)
		}
	}
	b, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	checkXML(t, string(b))
	if b, err = os.ReadFile(md); err != nil || !strings.Contains(string(b), "## multi: ") {
		t.Errorf("Markdown: %v\n%s", err, b)
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
