package holdfast_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Every Go block of the README is a program of examples/quickstart, which has tests. No line is cut
// off on a page that is 90 columns wide.
func TestReadmeCode(t *testing.T) {
	programs := map[string]bool{}
	for _, pattern := range []string{"examples/quickstart/main.go", "examples/quickstart/*/main.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			_, code, _ := strings.Cut(text(t, f), "\npackage main\n") // without the comment of the package
			programs["package main\n"+code] = true
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text(t, "README.md"), -1)
	if len(blocks) != len(programs) {
		t.Errorf("%d Go blocks, want %d", len(blocks), len(programs))
	}
	for _, b := range blocks {
		if !programs[b[1]] {
			t.Errorf("this block is not a program of examples/quickstart:\n%s", b[1])
		}
		for line := range strings.Lines(b[1]) {
			if n := utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "        ")) - len("\n"); n > 90 {
				t.Errorf("this line has %d columns, must have at most 90: %s", n, line)
			}
		}
	}
}

// The README shows the columns that holdfast ls prints.
func TestReadmeList(t *testing.T) {
	head, _, _ := strings.Cut(text(t, "internal/cli/testdata/ls.txt"), "\n") // which a test compares with the command
	if !strings.Contains(squeeze(text(t, "README.md")), "$ holdfast ls "+squeeze(head)+" exclusive held ") {
		t.Errorf("the README does not show the columns %s", head)
	}
}

// Every row of GUARANTEES.md has tests in docs/guarantee-tests.md, and these exist. That page is
// written from the markers of the tests; make test also compares the two.
func TestGuaranteesNameTests(t *testing.T) {
	tests, shown := map[string]string{}, map[string]bool{} // tests: package → code
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \| (.*) \|$`).FindAllStringSubmatch(text(t, "docs/guarantee-tests.md"), -1) {
		for in := range strings.SplitSeq(row[2], "<br>") {
			dir, names, _ := strings.Cut(in, ": ")
			if tests[dir] == "" {
				tests[dir] = testsOf(t, dir)
			}
			for name := range strings.SplitSeq(names, ", ") {
				shown[row[1]] = true
				if !strings.Contains(tests[dir], "func "+name+"(") {
					t.Errorf("%s: %s has no %s", row[1], dir, name)
				}
			}
		}
	}
	for row := range promises(t) {
		if !shown[row] {
			t.Errorf("%s has no test", row)
		}
		delete(shown, row)
	}
	for row := range shown {
		t.Errorf("GUARANTEES.md has no row %s", row)
	}
}

// testsOf returns the code of the tests of a package.
func testsOf(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(b)
	}
	return code.String()
}

// promises returns the numbers of the rows of GUARANTEES.md, which are unique.
func promises(t *testing.T) map[string]bool {
	t.Helper()
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \|`).FindAllStringSubmatch(text(t, "GUARANTEES.md"), -1) {
		if rows[row[1]] {
			t.Errorf("two rows have the number %s", row[1])
		}
		rows[row[1]] = true
	}
	if len(rows) < 100 {
		t.Errorf("only %d numbered rows", len(rows))
	}
	return rows
}

// The numbers of the rows of GUARANTEES.md are unique, and the simulation reports violations by
// them.
func TestGuaranteesAreNumbered(t *testing.T) {
	rows := promises(t)
	files, err := filepath.Glob("proof/sim/*.go")
	if err != nil {
		t.Fatal(err)
	}
	reported := 0
	for _, f := range files {
		code, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range regexp.MustCompile(`[fF]ail(?:Locked)?\("([A-Z][0-9]+)"`).FindAllStringSubmatch(string(code), -1) {
			reported++
			if !rows[n[1]] {
				t.Errorf("%s: GUARANTEES.md has no row %s", f, n[1])
			}
		}
	}
	for _, n := range regexp.MustCompile(`[^.][(]([A-Z][0-9]+(?:, [A-Z][0-9]+)*)[)]`).FindAllStringSubmatch(text(t, "GUARANTEES.md"), -1) {
		for number := range strings.SplitSeq(n[1], ", ") {
			if !rows[number] {
				t.Errorf("a promise names the row %s, which does not exist", number)
			}
		}
	}
	if reported < 20 {
		t.Errorf("the simulation reports only %d kinds of violations", reported)
	}
}

func text(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// squeeze makes indentation and line ends the same.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
