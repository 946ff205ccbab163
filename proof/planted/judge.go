package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// limit is the timeout of the tests of one mistake.
const limit = 5 * time.Minute

// report is the result of one go test.
type report struct {
	action map[string]string // the last action of each test: run, pass, fail, skip
	failed bool              // go test failed
	build  bool              // the build failed
	output string
}

// event is a line of go test -json, see go doc test2json.
type event struct{ Action, Test, Output string }

// modules are the folders of the modules of their own that have some of the tests.
var modules = []string{"proof", "postgres"}

// test runs the named tests of a package, a folder in root. If overlay is not empty, it names a file
// for go test -overlay.
func test(root, overlay, pkg string, names []string) (report, error) {
	args := []string{"test", "-json", "-vet=off", "-count=1", "-timeout", limit.String(), "-run", "^(" + strings.Join(names, "|") + ")$"}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	dir := root
	for _, m := range modules {
		if in, ok := strings.CutPrefix(pkg+"/", m+"/"); ok {
			dir, pkg = filepath.Join(root, m), in
		}
	}
	cmd := exec.Command("go", append(args, "./"+pkg)...) //nolint:noctx // same process group, so it ends with this process
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), testlevel.Env+"=campaign") // lower levels skip some of the tests named
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if _, ended := err.(*exec.ExitError); err != nil && !ended { //nolint:errorlint // Run does not wrap it
		return report{}, err
	}
	return read(out.Bytes(), err != nil), nil
}

func read(out []byte, failed bool) report {
	r := report{action: map[string]string{}, failed: failed}
	var said strings.Builder
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			said.Write(append(lines.Bytes(), '\n'))
			continue
		}
		switch e.Action {
		case "run", "pass", "fail", "skip":
			r.action[e.Test] = e.Action
		case "build-fail":
			r.build = true
		}
		said.WriteString(e.Output)
	}
	r.output = said.String()
	return r
}

// found returns nil if the test has found the mistake.
func (r report) found(test string) error {
	switch action := r.action[test]; {
	case r.build:
		return fmt.Errorf("does not build:\n%s", r.end())
	case strings.Contains(r.output, "panic: test timed out after"):
		return fmt.Errorf("%s took longer than %v", test, limit)
	case action == "skip":
		return fmt.Errorf("%s was skipped:\n%s", test, r.end())
	case action == "pass":
		return fmt.Errorf("NOT CAUGHT by %s", test)
	case r.failed && (action == "fail" || action == "run"): // the test may have ended the process
		return nil
	}
	return fmt.Errorf("%s did not run:\n%s", test, r.end())
}

// passed returns nil if every test has passed.
func (r report) passed(tests []string) error {
	for _, name := range tests {
		if action := r.action[name]; action != "pass" {
			return fmt.Errorf("%s: %q on the unchanged code, must pass:\n%s", name, action, r.end())
		}
	}
	return nil
}

// end returns the end of the output.
func (r report) end() string {
	const most = 3000
	return r.output[max(len(r.output)-most, 0):]
}
