// Package docprogram compares the program in a package's documentation with an Example that is
// compiled and run.
package docprogram

import (
	"errors"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Check compares the program in the package comment of docFile with exampleFile. It returns an
// error unless the program has at most maxLines lines and the imports of exampleFile, and its main
// has the same body as func Example. Indentation, line ends, and the Output comment and a nolint
// directive of the Example do not count. So the program compiles and prints the output of the
// Example.
func Check(docFile, exampleFile string, maxLines int) error {
	text, err := program(docFile)
	if err != nil {
		return fmt.Errorf("%s: %w", docFile, err)
	}
	if n := strings.Count(text, "\n"); n > maxLines {
		return fmt.Errorf("%s: program has %d lines, must have at most %d", docFile, n, maxLines)
	}
	want, wantImports, err := body(text, "main")
	if err != nil {
		return fmt.Errorf("%s: %w", docFile, err)
	}
	source, err := os.ReadFile(exampleFile)
	if err != nil {
		return err
	}
	got, gotImports, err := body(string(source), "Example")
	if err != nil {
		return fmt.Errorf("%s: %w", exampleFile, err)
	}
	if !slices.Equal(gotImports, wantImports) {
		return fmt.Errorf("imports are %q in %s and %q in %s", wantImports, docFile, gotImports, exampleFile)
	}
	if got != want {
		return fmt.Errorf("main in %s differs from Example in %s:\n%s\n%s", docFile, exampleFile, want, got)
	}
	return nil
}

// program returns the first code block of a package comment that begins with package main.
func program(file string) (string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return "", err
	}
	var p comment.Parser
	for _, block := range p.Parse(f.Doc.Text()).Content {
		if code, ok := block.(*comment.Code); ok && strings.HasPrefix(code.Text, "package main\n") {
			return code.Text, nil
		}
	}
	return "", errors.New("package comment has no program")
}

var (
	output = regexp.MustCompile(`(?i)//[[:space:]]*(unordered )?output:`)
	nolint = regexp.MustCompile(`^ *//nolint:.*`)
)

// body returns the statements of func name, and the sorted imports of source.
func body(source, name string) (text string, imports []string, err error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", source, 0)
	if err != nil {
		return "", nil, err
	}
	set := map[string]bool{}
	for _, spec := range f.Imports {
		path := spec.Path.Value
		if spec.Name != nil {
			path = spec.Name.Name + " " + path
		}
		set[path] = true
	}
	for _, decl := range f.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == name {
			text = source[fset.Position(fn.Body.Lbrace).Offset+1 : fset.Position(fn.Body.Rbrace).Offset]
			if at := output.FindStringIndex(text); at != nil {
				text = text[:at[0]]
			}
			text = nolint.ReplaceAllString(text, "")
			return strings.Join(strings.Fields(text), " "), slices.Sorted(maps.Keys(set)), nil
		}
	}
	return "", nil, fmt.Errorf("has no func %s", name)
}
