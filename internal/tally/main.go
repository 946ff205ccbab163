// Tally runs go test with its arguments and counts the results, so that tests that were skipped without a redis-server,
// or for the level of the run, are not overlooked. It prints a line for each package, the output of failed tests, with
// -v also the log of the others, and the counts. It ends with the exit code of go test.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

func main() {
	code, err := run(os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tally:", err)
	}
	os.Exit(code)
}

// run returns the exit code of go test, or 1 with the reason why it has none.
func run(args []string, w io.Writer) (int, error) {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...) //nolint:noctx // it ends with us: same process group
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 1, err
	}
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	t := newTally(w)
	t.verbose = slices.Contains(args, "-v")
	readErr := t.read(out)
	err = cmd.Wait()
	fmt.Fprintln(w, t)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(exit.ExitCode(), 1), nil // -1 for a signal
	case err != nil:
		return 1, err
	case readErr != nil:
		return 1, readErr
	case t.failed > 0:
		return 1, errors.New("go test ended well although tests failed")
	}
	return 0, nil
}

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

type test struct{ pkg, name string }

// tally counts leaves: a test with subtests is counted only if it failed by itself.
type tally struct {
	w                                                io.Writer
	passed, failed, skipped, withoutServer, ofALevel int
	output                                           map[test][]string
	verbose                                          bool
	parent, broken                                   map[test]bool // has subtests; something in it failed
}

func newTally(w io.Writer) *tally {
	return &tally{w: w, output: map[test][]string{}, parent: map[test]bool{}, broken: map[test]bool{}}
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
	case "run":
		for p := outer(at); p.name != ""; p = outer(p) {
			t.parent[p] = true
		}
	case "output":
		t.output[at] = append(t.output[at], e.Output)
	case "pass", "skip", "fail":
		t.end(at, e.Action)
	}
}

func (t *tally) end(at test, action string) {
	said := t.output[at]
	text := strings.Join(said, "")
	delete(t.output, at)
	if action == "fail" {
		if !t.broken[at] {
			t.failed++
		}
		t.broken[outer(at)], t.broken[test{pkg: at.pkg}] = true, true
		fmt.Fprint(t.w, text)
		return
	}
	if t.verbose {
		t.logged(at, said)
	}
	switch {
	case at.name == "":
		if len(said) > 0 {
			fmt.Fprint(t.w, said[len(said)-1]) // "ok  …", without what the tests of a good package said
		}
	case t.parent[at]:
	case action == "skip" || strings.Contains(text, testlevel.SkippedInMemory): // go test calls a skip in a bubble a pass
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

// logged prints what a test said, without what go test says of it.
func (t *tally) logged(at test, said []string) {
	for _, line := range said {
		if line := strings.TrimLeft(line, " "); at.name != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			fmt.Fprintf(t.w, "%s: %s", at.name, line)
		}
	}
}

// outer is the test that at is a subtest of; of a test it is its package.
func outer(at test) test {
	name := at.name[:max(strings.LastIndexByte(at.name, '/'), 0)]
	return test{at.pkg, name}
}

func (t *tally) String() string {
	s := fmt.Sprintf("%d passed, %d failed, %d skipped", t.passed, t.failed, t.skipped)
	if t.ofALevel > 0 {
		s = fmt.Sprintf("%d tests belong to a higher test level; CI runs them.\n%s", t.ofALevel, s)
	}
	if t.withoutServer > 0 {
		s = fmt.Sprintf("%d tests were SKIPPED because redis-server is not installed; CI runs them.\n%s", t.withoutServer, s)
	}
	return s
}
