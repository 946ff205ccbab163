// Tally runs go test with its arguments and counts the results. The counts show the tests that were
// skipped without a redis-server, or for the level of the run. It prints a line for each package,
// the output of failed tests, and the counts. With -v it also prints the log of the other tests. It
// ends with the exit code of go test.
//
// A failure is inconclusive if the machine stopped for more than 250 ms during the test. It is also
// inconclusive if the machine needed more than 50 ms for work of about 5 ms. If
// HOLDFAST_TALLY_REPEAT is 1 and each failure is inconclusive, tally repeats the failed tests one
// after the other, at most twice. It reports each repeat. A panic, a data race, a process that
// ended and a failure of a package as a whole are never inconclusive. The checks that search for
// overlaps for minutes (simulation, history, signals, faults, topology) run without repeats.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

const (
	repeatEnv = "HOLDFAST_TALLY_REPEAT"
	repeats   = 2
)

func main() {
	code, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	os.Exit(code)
}

// run returns the exit code of go test, or 1 and the reason if there is none.
func run(args []string, w io.Writer) (int, error) {
	t := newTally(w)
	t.verbose = slices.Contains(args, "-v")
	t.slow.watch()
	code, err := t.goTest(args)
	for n := 0; os.Getenv(repeatEnv) == "1" && err == nil && code != 0 && n < repeats && t.inconclusive(); n++ {
		code, err = t.again(args)
	}
	fmt.Fprintln(w, t)
	return code, err
}

// goTest runs go test once.
func (t *tally) goTest(args []string) (int, error) {
	failed := t.failed
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...) //nolint:noctx // same process group, so it ends with this process
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	readErr := t.read(out)
	err = cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() < 0:
		return 1, fmt.Errorf("go test was killed: %w", err)
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	case err != nil:
		return 1, err
	case readErr != nil:
		return 1, readErr
	case t.failed > failed:
		return 1, errors.New("go test returned 0 although tests failed")
	}
	return 0, nil
}

// inconclusive reports whether the machine was too slow during each test that failed.
func (t *tally) inconclusive() bool {
	return len(t.failures) > 0 && !slices.ContainsFunc(t.failures, func(f failure) bool { return f.late == 0 })
}

// again repeats the failed tests, one package at a time.
func (t *tally) again(args []string) (code int, err error) {
	tests := map[string][]string{} // by package
	for _, f := range t.failures {
		name, _, _ := strings.Cut(f.name, "/")
		fmt.Fprintf(t.w, "Repeating %s %s: the machine was too slow during it, by up to %v.\n", f.pkg, name, f.late.Round(time.Millisecond))
		if !slices.Contains(tests[f.pkg], name) {
			tests[f.pkg] = append(tests[f.pkg], name)
		}
	}
	before := len(t.failures)
	passed, skipped, withoutServer, ofALevel := t.passed, t.skipped, t.withoutServer, t.ofALevel
	t.failed, t.failures, t.broken, t.good = 0, nil, map[test]bool{}, map[test]bool{}
	for _, pkg := range slices.Sorted(maps.Keys(tests)) {
		c, err := t.goTest(only(args, pkg, tests[pkg]))
		if code = max(code, c); err != nil {
			return code, err
		}
		for _, name := range tests[pkg] {
			if c == 0 && !t.good[test{pkg, name}] {
				return 1, fmt.Errorf("the repeat of %s %s did not run it", pkg, name)
			}
		}
	}
	t.passed, t.skipped, t.withoutServer, t.ofALevel = passed+max(before-t.failed, 0), skipped, withoutServer, ofALevel
	return code, nil
}

// only returns the arguments of go test that run only these tests of one package, one after the
// other.
func only(args []string, pkg string, tests []string) []string {
	flags, rest := args, []string(nil)
	if i := slices.Index(args, "-args"); i >= 0 {
		flags, rest = args[:i], args[i:]
	}
	flags = slices.DeleteFunc(slices.Clone(flags), func(arg string) bool {
		return strings.HasPrefix(arg, "./") || strings.HasPrefix(arg, "github.com/")
	})
	return slices.Concat(flags, []string{"-run", "^(" + strings.Join(tests, "|") + ")$", "-count=1", "-parallel=1", pkg}, rest)
}

// event is a line of go test -json, see go doc test2json.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

type test struct{ pkg, name string }

// failure is a test that failed itself, not only in a subtest.
type failure struct {
	test
	late time.Duration // the longest delay of the machine during the test; 0: none
}

// tally counts leaves: a test with subtests counts only if it failed itself.
type tally struct {
	w                                                io.Writer
	passed, failed, skipped, withoutServer, ofALevel int
	output                                           map[test][]string
	verbose                                          bool
	parent, broken, good                             map[test]bool // has subtests; something in it failed; passed
	began, ended                                     map[test]time.Time
	failures                                         []failure
	slow                                             slowness
}

func newTally(w io.Writer) *tally {
	return &tally{w: w, output: map[test][]string{}, parent: map[test]bool{}, broken: map[test]bool{}, good: map[test]bool{}, began: map[test]time.Time{}, ended: map[test]time.Time{}}
}

func (t *tally) read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				t.add(e)
			} else {
				fmt.Fprintf(t.w, "%s", line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (t *tally) add(e event) {
	at := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(t.w, e.Output)
	case "cont":
		t.began[at] = e.Time
	case "run":
		t.began[at] = e.Time
		for p := outer(at); p.name != ""; p = outer(p) {
			t.parent[p] = true
		}
	case "output":
		t.output[at] = append(t.output[at], e.Output)
		if strings.HasPrefix(strings.TrimLeft(e.Output, " "), "--- FAIL: "+e.Test+" ") {
			t.ended[at] = e.Time // the event of the test comes later, with the next line of another test
		}
	case "pass", "skip", "fail":
		t.end(at, e)
	}
}

func (t *tally) end(at test, e event) {
	said := t.output[at]
	text := strings.Join(said, "")
	delete(t.output, at)
	if e.Action == "fail" {
		if !t.broken[at] {
			t.failed++
			t.failures = append(t.failures, failure{at, t.late(at, text)})
		}
		t.broken[outer(at)], t.broken[test{pkg: at.pkg}] = true, true
		if at.name == "" && (t.unended(at.pkg) || !onlyFailed(said)) {
			t.failures = append(t.failures, failure{test: at})
		}
		fmt.Fprint(t.w, text)
		return
	}
	t.good[at] = e.Action == "pass"
	if t.verbose {
		t.logged(at, said)
	}
	switch {
	case at.name == "":
		if len(said) > 0 {
			fmt.Fprint(t.w, said[len(said)-1]) // "ok  …", without the output of the tests of a package that passed
		}
	case t.parent[at]:
	case e.Action == "skip" || strings.Contains(text, testlevel.SkippedInMemory): // go test reports a skip in a bubble as a pass
		t.skipped++
		if strings.Contains(text, "redis-server:") {
			t.withoutServer++
		}
		if strings.Contains(text, testlevel.Skipped) {
			t.ofALevel++
		}
	default:
		t.passed++
	}
}

// late returns the longest delay of the machine during a test that failed. It returns 0 for a
// package, and if a delay cannot be the reason.
func (t *tally) late(at test, said string) time.Duration {
	began, ended := t.began[at], t.ended[at]
	for _, bad := range []string{"panic: ", "fatal error: ", "race detected", "DATA RACE"} {
		if strings.Contains(said, bad) {
			return 0
		}
	}
	if at.name == "" || began.IsZero() || ended.IsZero() {
		return 0
	}
	return t.slow.longest(began, ended)
}

// onlyFailed reports whether the output of a package says only that tests failed.
func onlyFailed(said []string) bool {
	return !slices.ContainsFunc(said, func(line string) bool {
		return line != "FAIL\n" && !strings.HasPrefix(line, "FAIL\t") && !strings.HasPrefix(line, "exit status ") && !strings.HasPrefix(line, "-test.shuffle ")
	})
}

// unended prints the output of tests that were still running when the process of their package
// ended. It reports whether there are any.
func (t *tally) unended(pkg string) (found bool) {
	for at, said := range t.output {
		if at.pkg == pkg {
			fmt.Fprint(t.w, strings.Join(said, ""))
			delete(t.output, at)
			found = true
		}
	}
	return found
}

// logged prints the log of a test, without the lines of go test.
func (t *tally) logged(at test, said []string) {
	for _, line := range said {
		if line := strings.TrimLeft(line, " "); at.name != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			fmt.Fprintf(t.w, "%s: %s", at.name, line)
		}
	}
}

// outer returns the test that at is a subtest of. For a test it returns the package.
func outer(at test) test {
	name := at.name[:max(strings.LastIndexByte(at.name, '/'), 0)]
	return test{at.pkg, name}
}

func (t *tally) String() string {
	s := fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
	if t.ofALevel > 0 {
		s = fmt.Sprintf("%d tests belong to a higher test level: .ci/run or make campaign runs them.\n%s", t.ofALevel, s)
	}
	if t.withoutServer > 0 {
		s = fmt.Sprintf("%d tests were SKIPPED because redis-server is not installed; CI runs them.\n%s", t.withoutServer, s)
	}
	return s
}
