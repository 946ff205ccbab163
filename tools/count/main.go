// Count prints the size of a repository: lines of Go by purpose, words of Markdown by page, and
// exported symbols by package.
//
//	go -C tools run ./count [root]
//	go -C tools run ./count -write [root]
//
// With -write it counts nothing. It writes docs/guarantee-tests.md: the tests of each promise of
// GUARANTEES.md, by the comment "Shows: I4" above a test.
//
// Definitions:
//
//   - Lines are all lines of a Go file. Files with the mark of generated code are apart.
//   - The public product is every package that is not in one of the folders named below. The
//     internal product is what the public product imports from internal, directly or not. The other
//     packages of internal, and those of proof, are the proof: a row each.
//   - Words are fields with a letter or a digit, outside of blocks of code. So the lines and bars of
//     a table are no words.
//   - Symbols are the exported functions, types, constants and variables of a package, and the
//     exported methods and fields of its exported types, without embedded ones.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	do, tests := count, flag.Bool("write", false, "write "+testPage)
	flag.Parse()
	root := ".."
	if flag.NArg() > 0 {
		root = flag.Arg(0)
	}
	if *tests {
		do = write
	}
	if err := do(root); err != nil {
		fmt.Fprintln(os.Stderr, "count:", err)
		os.Exit(1)
	}
}

func count(root string) error {
	r, err := read(root)
	if err != nil {
		return err
	}
	r.lines()
	r.words()
	r.symbols()
	return nil
}

// write writes the page of the tests, and returns an error if a marker is wrong.
func write(root string) error {
	r, err := read(root)
	if err != nil {
		return err
	}
	page, problems, err := r.tests(root)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "\n"))
	}
	return os.WriteFile(filepath.Join(root, testPage), []byte(page), 0o644)
}

// repository is what was counted. The keys are paths with slashes, relative to the root.
type repository struct {
	module   string
	packages map[string]*folder
	pages    map[string]page
}

func read(root string) (*repository, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	r := &repository{strings.TrimPrefix(line, "module "), map[string]*folder{}, map[string]page{}}
	return r, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".go" && path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		if path.Ext(name) == ".md" {
			r.pages[name] = readPage(string(text))
			return nil
		}
		dir := path.Dir(name)
		if r.packages[dir] == nil {
			r.packages[dir] = &folder{imports: map[string]bool{}, symbols: map[string]bool{}}
		}
		return r.packages[dir].add(name, text)
	})
}

// purposes are the rows of the table of lines, in order. The proof comes after productInternal.
const (
	productPublic   = "product, public"
	productInternal = "product, internal"
)

// purpose returns the row for a package. used are the internal packages of the product.
func (r *repository) purpose(dir string, used map[string]bool) string {
	top, _, _ := strings.Cut(dir, "/")
	switch top {
	case "locktest", "bench", "examples", "tools":
		return top
	case "docs":
		return "tests of docs"
	case "internal", "proof":
		if used[dir] {
			return productInternal
		}
		// A package below another one of the proof is a part of it.
		for up := path.Dir(dir); up != top; up = path.Dir(up) {
			if r.packages[up] != nil && !used[up] {
				dir = up
			}
		}
		return dir
	}
	return productPublic
}

// used returns the internal packages of the product.
func (r *repository) used() map[string]bool {
	used := map[string]bool{}
	var add func(dir string)
	add = func(dir string) {
		for name := range r.packages[dir].imports {
			to, ok := strings.CutPrefix(name, r.module+"/internal/")
			if to = "internal/" + to; ok && !used[to] && r.packages[to] != nil {
				used[to] = true
				add(to)
			}
		}
	}
	for dir := range r.packages {
		if r.purpose(dir, nil) == productPublic {
			add(dir)
		}
	}
	return used
}

func (r *repository) lines() {
	used, rows, all, generated := r.used(), map[string]size{}, size{}, size{}
	for dir, f := range r.packages {
		p := r.purpose(dir, used)
		rows[p] = rows[p].plus(f.size)
		all, generated = all.plus(f.size), generated.plus(f.generated)
	}
	order := []string{productPublic, productInternal, "locktest", "bench", "examples", "tests of docs", "tools"}
	proof := size{}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(rows)), func(p string) bool { return slices.Contains(order, p) })
	for _, p := range names {
		proof = proof.plus(rows[p])
	}
	rows["proof, all"] = proof
	order = slices.Insert(order, 3, append(names, "proof, all")...)
	row("lines of Go", "source", "test", "all")
	for _, p := range order {
		rows[p].print(p)
	}
	generated.print("generated")
	all.plus(generated).print("all")
}

func (r *repository) words() {
	all := 0
	fmt.Println("\nwords of Markdown")
	for _, name := range slices.Sorted(maps.Keys(r.pages)) {
		all += r.pages[name].words
		row(name, r.pages[name].words)
	}
	row("not generated, without CHANGELOG.md", r.written())
	row("all", all)
}

// written returns the words of the pages that people write, without CHANGELOG.md.
func (r *repository) written() int {
	words := 0
	for name, p := range r.pages {
		if !p.generated && name != "CHANGELOG.md" {
			words += p.words
		}
	}
	return words
}

func (r *repository) symbols() {
	all := 0
	fmt.Println("\nexported symbols")
	for _, dir := range slices.Sorted(maps.Keys(r.packages)) {
		f := r.packages[dir]
		if p := r.purpose(dir, nil); p != productPublic && p != "locktest" || f.program || len(f.symbols) == 0 {
			continue
		}
		all += len(f.symbols)
		row(dir, len(f.symbols))
	}
	row("all", all)
}

// row prints one line of a table.
func row(name string, columns ...any) {
	fmt.Printf("%-40s", name)
	for _, c := range columns {
		fmt.Printf("%9v", c)
	}
	fmt.Println()
}
