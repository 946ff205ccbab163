package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// With -v tally also prints the log of tests, but not the lines of go test.
func TestVerbose(t *testing.T) {
	const log = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: 42 of 42\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"ok  \tp\n"}
{"Action":"pass","Package":"p"}
`
	var out strings.Builder
	c := newTally(&out)
	c.verbose = true
	if err := c.read(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	if want := "TestA: a_test.go:1: 42 of 42\nok  \tp\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// This log covers what is counted, what is printed, and what is not.
func TestTally(t *testing.T) {
	const log = `{"Action":"build-output","ImportPath":"p/broken","Output":"broken.go:1: syntax error\n"}
{"Action":"fail","Package":"p/broken"}
{"Action":"output","Package":"p","Output":"-test.shuffle 1\n"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"run","Package":"p","Test":"TestA/y"}
{"Action":"output","Package":"p","Test":"TestA/y","Output":"y is wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA/y"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: redis-server: not found\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"run","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    d_test.go:1: test level: runs with HOLDFAST_TEST_LEVEL=full, and the level is quick\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"run","Package":"p","Test":"TestE"}
{"Action":"output","Package":"p","Test":"TestE","Output":"    e_test.go:1: real servers only: HOLDFAST_TEST_REAL_ONLY=1\n"}
{"Action":"pass","Package":"p","Test":"TestE"}
{"Action":"output","Package":"p","Output":"FAIL\tp\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Output":"PASS\n"}
{"Action":"output","Package":"q","Output":"ok  \tq\n"}
{"Action":"pass","Package":"q"}
{"Action":"output","Package":"r","Output":"found unexpected goroutines\n"}
{"Action":"fail","Package":"r"}
not json
`
	var out strings.Builder
	c := newTally(&out)
	if err := c.read(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	const want = `broken.go:1: syntax error
y is wrong
-test.shuffle 1
FAIL	p
ok  	q
found unexpected goroutines
not json
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	const counts = "1 tests were SKIPPED because redis-server is not installed; CI runs them.\n" +
		"1 tests belong to a higher test level: .ci/run or make campaign runs them.\n1 passed, 3 failed, 4 skipped"
	if got := c.String(); got != counts {
		t.Errorf("counted %q, want %q", got, counts)
	}
}

// Failed tests are repeated only if the machine was too slow during each of them.
func TestInconclusive(t *testing.T) {
	const log = `{"Time":"2000-01-01T00:00:00Z","Action":"run","Package":"p","Test":"TestA"}
{"Time":"2000-01-01T00:00:00Z","Action":"run","Package":"p","Test":"TestA/x"}
{"Time":"2000-01-01T00:00:05Z","Action":"cont","Package":"p","Test":"TestA/x"}
{"Time":"2000-01-01T00:00:06Z","Action":"output","Package":"p","Test":"TestA/x","Output":"SAID\n"}
{"Time":"2000-01-01T00:00:07Z","Action":"output","Package":"p","Test":"TestA/x","Output":"    --- FAIL: TestA/x (2.00s)\n"}
{"Time":"2000-01-01T00:00:20Z","Action":"fail","Package":"p","Test":"TestA/x"}
{"Time":"2000-01-01T00:00:08Z","Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
MORE{"Action":"fail","Package":"p"}
`
	begin := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		at, took time.Duration
		said     string
		more     string
		again    bool
	}{
		"during":               {6 * time.Second, time.Second, "late", "", true},
		"across":               {4 * time.Second, 10 * time.Second, "late", "", true},
		"before":               {4 * time.Second, time.Second, "late", "", false},
		"after":                {7 * time.Second, time.Second, "late", "", false},
		"short":                {6 * time.Second, 250 * time.Millisecond, "late", "", false},
		"panic":                {6 * time.Second, time.Second, "panic: boom", "", false},
		"race":                 {6 * time.Second, time.Second, "race detected during execution of test", "", false},
		"leak":                 {6 * time.Second, time.Second, "late", `{"Action":"output","Package":"p","Output":"found unexpected goroutines\n"}` + "\n", false},
		"another":              {6 * time.Second, time.Second, "late", `{"Time":"2000-01-01T00:00:09Z","Action":"run","Package":"q","Test":"TestB"}` + "\n" + `{"Time":"2000-01-01T00:00:10Z","Action":"fail","Package":"q","Test":"TestB"}`, false},
		"a process that ended": {6 * time.Second, time.Second, "late", `{"Action":"output","Package":"q","Test":"TestB","Output":"log.Fatal"}` + "\n" + `{"Action":"fail","Package":"q"}`, false},
		"a build":              {6 * time.Second, time.Second, "late", `{"Action":"fail","Package":"q"}`, false},
	} {
		tl := newTally(new(strings.Builder))
		tl.slow.slept(begin.Add(c.at), begin.Add(c.at+c.took))
		if err := tl.read(strings.NewReader(strings.NewReplacer("SAID", c.said, "MORE", c.more+"\n").Replace(log))); err != nil {
			t.Fatal(err)
		}
		if got := tl.inconclusive(); got != c.again {
			t.Errorf("%s: runs again: %v", name, got)
		}
	}
}

// A piece of work that took too long counts for the time since the previous piece.
func TestWorked(t *testing.T) {
	var s slowness
	at := func(ms int64) time.Time { return time.UnixMilli(ms) }
	s.worked(at(0), at(240), at(240+50))
	s.worked(at(1000), at(1240), at(1240+51))
	if d := s.longest(at(0), at(900)); d != 0 {
		t.Errorf("work of 50 ms: a delay of %v", d)
	}
	if d := s.longest(at(1100), at(1110)); d != 51*time.Millisecond {
		t.Errorf("work of 51 ms: a delay of %v", d)
	}
	if d := s.longest(at(1300), at(1400)); d != 0 {
		t.Errorf("after it: a delay of %v", d)
	}
	before := sink.Load()
	if work(); sink.Load() == before {
		t.Error("no work was done")
	}
}

func TestOnly(t *testing.T) {
	args := []string{"-race", "-timeout", "20m", "./lockcore", "github.com/holdfast-go/holdfast/guard", "-v", "-args", "-seed", "./x"}
	want := []string{"-race", "-timeout", "20m", "-v", "-run", "^(TestA|TestB)$", "-count=1", "-parallel=1", "p", "-args", "-seed", "./x"}
	if got := only(args, "p", []string{"TestA", "TestB"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
