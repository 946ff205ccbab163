package holdfast_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every Go block of the README stands word for word in a file that is compiled and tested.
func TestReadmeCode(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "middleware/*/example*_test.go", "tracing/example*_test.go", "examples/quickstart/main.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.WriteString(squeeze(string(b)))
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 3 {
		t.Errorf("only %d Go blocks found", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), squeeze(b[1])) {
			t.Errorf("this block is in no tested file:\n%s", b[1])
		}
	}
}

// Every test that GUARANTEES.md names exists.
func TestGuaranteesNameTests(t *testing.T) {
	text, err := os.ReadFile("GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			var b []byte
			b, err = os.ReadFile(path)
			tests.Write(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest\w+`).FindAllString(string(text), -1)
	if len(names) < 20 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "func "+name+"(") {
			t.Errorf("%s does not exist", name)
		}
	}
}

// The numbers of the rows of GUARANTEES.md are unique, and the simulation reports violations by
// them.
func TestGuaranteesAreNumbered(t *testing.T) {
	text, err := os.ReadFile("GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \|`).FindAllStringSubmatch(string(text), -1) {
		if rows[row[1]] {
			t.Errorf("two rows have the number %s", row[1])
		}
		rows[row[1]] = true
	}
	if len(rows) < 100 {
		t.Errorf("only %d numbered rows", len(rows))
	}
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
	for _, n := range regexp.MustCompile(`[^.][(]([A-Z][0-9]+(?:, [A-Z][0-9]+)*)[)]`).FindAllStringSubmatch(string(text), -1) {
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

// squeeze makes indentation and line ends the same.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
