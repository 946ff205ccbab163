package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// Each mistake fits the code: its markers exist once, its operations can be applied, the result is
// valid Go, and its test exists. Each marker is used.
func TestMistakesFitTheCode(t *testing.T) {
	marked, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	names, used := map[string]bool{}, map[string]bool{}
	for _, m := range all() {
		if names[m.name] || m.name == "" || m.what == "" || len(m.edits) == 0 {
			t.Errorf("%q: named twice or not complete", m.name)
		}
		names[m.name] = true
		for _, e := range m.edits {
			used[e.at] = true
		}
		changed, err := m.changed(marked)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		for file, text := range changed {
			if filepath.Ext(file) == ".go" {
				if _, err := parser.ParseFile(token.NewFileSet(), file, text, 0); err != nil {
					t.Errorf("%s: %v", m.name, err)
				}
			}
		}
		if !strings.Contains(testsOf(t, m.pkg), "\nfunc "+m.test+"(t *testing.T) {") {
			t.Errorf("%s: %s has no %s", m.name, m.pkg, m.test)
		}
	}
	for name, list := range marked {
		if !used[name] {
			t.Errorf("%s:%d: no mistake uses the marker %s", list[0].file, list[0].line, name)
		}
	}
	numbers, err := promises("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all() {
		if len(numbers[m.test]) == 0 {
			t.Errorf("%s: %s has no marker // Shows, see docs/guarantee-tests.md", m.name, m.test)
		}
	}
	if len(names) < 60 {
		t.Errorf("%d mistakes", len(names))
	}
}

// Every row of docs/peers.md has a reference and tests that exist. Every case of a peer passes, or
// differs in a subtest that exists, or does not apply.
func TestPeersHaveTests(t *testing.T) {
	var tests strings.Builder
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			tests.WriteString(testsOf(t, strings.TrimPrefix(path, root)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`\bTest\w+`)
	rows, cases := tableRows(t, "docs/peers.md"), tableRows(t, "guard/testdata/redisson.txt")
	if len(rows) < 10 || len(cases) < 30 {
		t.Errorf("%d rows and %d cases", len(rows), len(cases))
	}
	for _, cells := range cases {
		caseRow(t, cells, tests.String())
	}
	for _, cells := range append(rows, cases...) {
		if strings.HasPrefix(cells[1], " does not apply: ") {
			continue
		}
		if len(cells) != 3 || strings.TrimSpace(cells[1]) == "" || !name.MatchString(cells[2]) {
			t.Errorf("a row without a reference or a test: %q", cells)
			continue
		}
		for _, test := range name.FindAllString(cells[2], -1) {
			if !strings.Contains(tests.String(), "\nfunc "+test+"(t *testing.T) {") {
				t.Errorf("%s does not exist", test)
			}
		}
	}
}

// tableRows returns the cells of the rows of all tables of a file, without their heads.
func tableRows(t *testing.T, file string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "|---") {
			rows = rows[:len(rows)-1] // the line before it is the head
		} else if strings.HasPrefix(line, "|") {
			rows = append(rows, strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|"))
		}
	}
	return rows
}

// caseRow checks the row of some cases of a peer.
func caseRow(t *testing.T, cells []string, tests string) {
	t.Helper()
	if len(cells) != 3 || !regexp.MustCompile(`^ (passes|differs: |does not apply: )`).MatchString(cells[1]) {
		t.Errorf("a row without the result of a case: %q", cells)
		return
	}
	subtests := strings.Split(strings.TrimSpace(cells[0]), ", ")
	switch _, one, named := strings.Cut(strings.TrimSpace(cells[2]), "/"); {
	case strings.HasPrefix(cells[1], " does not apply") || strings.HasSuffix(strings.TrimSpace(cells[2]), "InCluster"):
		return
	case named:
		subtests = []string{one}
	}
	for _, name := range subtests {
		if !strings.Contains(tests, "\t\t\""+name+"\":") {
			t.Errorf("there is no subtest %s", name)
		}
	}
}

// testsOf returns the text of the tests of a package.
func testsOf(t *testing.T, pkg string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	return text.String()
}
