package main

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const (
	promisePage = "GUARANTEES.md"
	testPage    = "docs/guarantee-tests.md"
)

// marked is a test with a marker, or one that repeats a mistake of another library.
type marked struct {
	name, comment string
	promises      []string
}

// mark notes a test if its comment has a marker, or if its name begins with TestPeer_.
func (f *folder) mark(d ast.Decl) {
	test, ok := d.(*ast.FuncDecl)
	if !ok || test.Recv != nil {
		return
	}
	m := marked{name: test.Name.Name}
	words := []string{}
	for line := range strings.Lines(test.Doc.Text()) {
		if numbers, ok := strings.CutPrefix(strings.TrimSpace(line), "Shows: "); ok {
			m.promises = append(m.promises, strings.Split(numbers, ", ")...)
		} else {
			words = append(words, strings.Fields(line)...)
		}
	}
	m.comment = strings.Join(words, " ")
	if len(m.promises) > 0 || strings.HasPrefix(m.name, "TestPeer_") {
		f.marked = append(f.marked, m)
	}
}

// tests returns the page with the tests of each promise, and what is wrong with the markers.
func (r *repository) tests(root string) (page string, problems []string, err error) {
	text, err := os.ReadFile(filepath.Join(root, promisePage))
	if err != nil {
		return "", nil, err
	}
	shown := map[string]map[string][]string{} // promise → package → tests
	peers := []string{}
	for _, dir := range slices.Sorted(maps.Keys(r.packages)) {
		list := r.packages[dir].marked
		slices.SortFunc(list, func(a, b marked) int { return strings.Compare(a.name, b.name) })
		for _, m := range list {
			for _, p := range m.promises {
				if shown[p] == nil {
					shown[p] = map[string][]string{}
				}
				shown[p][dir] = append(shown[p][dir], m.name)
			}
			if strings.HasPrefix(m.name, "TestPeer_") {
				peers = append(peers, fmt.Sprintf("| %s: %s | %s |\n", dir, m.name, m.comment))
			}
		}
	}
	b := new(strings.Builder)
	b.WriteString(head)
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \|`).FindAllStringSubmatch(string(text), -1) {
		in := shown[row[1]]
		if in == nil {
			problems = append(problems, "no test has the marker // Shows: "+row[1])
		}
		delete(shown, row[1])
		cells := []string{}
		for _, dir := range slices.Sorted(maps.Keys(in)) {
			cells = append(cells, dir+": "+strings.Join(in[dir], ", "))
		}
		fmt.Fprintf(b, "| %s | %s |\n", row[1], strings.Join(cells, "<br>"))
	}
	for _, p := range slices.Sorted(maps.Keys(shown)) {
		problems = append(problems, fmt.Sprintf("%s has no row %s, which %v show", promisePage, p, shown[p]))
	}
	b.WriteString(peerHead)
	b.WriteString(strings.Join(peers, ""))
	return b.String(), problems, nil
}

const head = `# Tests of the guarantees

Written by ` + "`go -C tools run ./count -write`" + `, from the comments of the tests: ` + "`// Shows: I4`" + ` names the promises that a test shows. [GUARANTEES.md](../GUARANTEES.md) has the promises with these numbers.

| no. | tests |
|---|---|
`

const peerHead = `
## Mistakes of other libraries

Each of these tests repeats a mistake that was reported for another library, or for a program that uses one. The text is the comment of the test. [peers.md](peers.md) gives an overview.

| test | the mistake, and what holdfast does |
|---|---|
`
