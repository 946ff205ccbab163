// Structure prints the structure of Go packages: lines, files, the largest dependency cycle of
// files, and the lengths of functions. It counts no test files. Program count counts the rest.
//
//	cd tools && go run ./structure ../lockcore ../guard
package main

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	verbose := flag.Bool("v", false, "name the files of the largest cycle and its edges")
	flag.Parse()
	for _, dir := range flag.Args() {
		if err := report(dir, *verbose); err != nil {
			fmt.Fprintf(os.Stderr, "structure: %s: %v\n", dir, err)
			os.Exit(1)
		}
	}
}

func report(dir string, verbose bool) error {
	c := packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps,
		Dir:  dir,
	}
	all, err := packages.Load(&c, ".")
	if err != nil {
		return err
	}
	p := all[0]
	if len(p.Errors) > 0 {
		return errors.New(p.Errors[0].Msg)
	}
	lines := 0
	for _, f := range p.Syntax {
		lines += p.Fset.File(f.Pos()).LineCount()
	}
	lengths, edges := functions(p), dependencies(p)
	cycle := largestCycle(edges)
	fmt.Printf("%s: %d lines, %d files, largest cycle %d files, function lines p50 %d, p95 %d, max %d\n",
		p.Name, lines, len(p.Syntax), len(cycle), at(lengths, 50), at(lengths, 95), at(lengths, 100))
	if verbose {
		for _, name := range cycle {
			uses := []string{}
			for _, to := range cycle {
				if used := edges[name][to]; len(used) > 0 && to != name {
					uses = append(uses, to+" ("+strings.Join(slices.Sorted(maps.Keys(used)), ", ")+")")
				}
			}
			fmt.Printf("  %s uses %s\n", name, strings.Join(uses, "; "))
		}
	}
	return nil
}

// functions returns the lengths in lines of all functions with a body, in ascending order.
func functions(p *packages.Package) []int {
	lengths := []int{}
	for _, f := range p.Syntax {
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Body != nil {
				lengths = append(lengths, p.Fset.Position(fn.End()).Line-p.Fset.Position(fn.Pos()).Line+1)
			}
		}
	}
	slices.Sort(lengths)
	return lengths
}

func at(sorted []int, percent int) int {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

// graph says by file which names of which other files it uses.
type graph map[string]map[string]map[string]bool

// dependencies returns which file uses functions, types, methods, fields, constants and variables
// that another file declares.
func dependencies(p *packages.Package) graph {
	g := graph{}
	file := func(pos token.Pos) string { return filepath.Base(p.Fset.Position(pos).Filename) }
	for _, f := range p.Syntax {
		g[file(f.Pos())] = map[string]map[string]bool{}
	}
	for id, object := range p.TypesInfo.Uses {
		if object.Pkg() != p.Types || !shared(object) {
			continue
		}
		from, to := file(id.Pos()), file(object.Pos())
		if from == to {
			continue
		}
		if g[from][to] == nil {
			g[from][to] = map[string]bool{}
		}
		g[from][to][object.Name()] = true
	}
	return g
}

// shared says whether the object is declared at package level, or is a method or field.
func shared(object types.Object) bool {
	switch o := object.(type) {
	case *types.Func:
		return true
	case *types.Var:
		return o.IsField() || o.Parent() == o.Pkg().Scope()
	}
	return object.Parent() == object.Pkg().Scope()
}

// largestCycle returns the largest set of files that all reach each other, sorted. It is empty if
// there is no cycle.
func largestCycle(g graph) []string {
	reach := map[string]map[string]bool{}
	for from := range g {
		reach[from] = map[string]bool{}
		for todo := []string{from}; len(todo) > 0; {
			next := todo[0]
			todo = todo[1:]
			for to := range g[next] {
				if !reach[from][to] {
					reach[from][to] = true
					todo = append(todo, to)
				}
			}
		}
	}
	largest := []string{}
	for from := range g {
		set := []string{}
		for to := range reach[from] {
			if reach[to][from] {
				set = append(set, to)
			}
		}
		slices.Sort(set)
		if len(set) > len(largest) || len(set) == len(largest) && slices.Compare(set, largest) < 0 {
			largest = set
		}
	}
	return largest
}
