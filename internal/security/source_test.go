package security_test

import (
	"crypto/rand"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const root = "../.."

// files returns the files of the repository with one of these endings, by their path from its root.
func files(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	check(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir() || !slices.Contains(endings, filepath.Ext(path)):
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a temporary file of another process
		}
		name, _ := filepath.Rel(root, path)
		texts[filepath.ToSlash(name)] = string(b)
		return err
	}))
	if len(texts) < 10 {
		t.Fatalf("only %d files found", len(texts))
	}
	return texts
}

// product reports whether a Go file is part of programs of users.
func product(name string) bool {
	return !strings.HasSuffix(name, "_test.go") && (!strings.HasPrefix(name, "internal/") || strings.HasPrefix(name, "internal/backend/")) && !strings.HasPrefix(name, "bench/") &&
		!strings.HasPrefix(name, "proof/") && !strings.HasPrefix(name, "tools/") && !strings.HasPrefix(name, "examples/")
}

func parse(t *testing.T, name, text string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), name, text, 0)
	check(t, err)
	return f
}

// No file of this repository disables the check of the server's certificate, so a copy of its code
// does not disable it either.
func TestCertificatesAreChecked(t *testing.T) {
	word := "Insecure" + "SkipVerify" // not in this file either
	for name, text := range files(t, ".go", ".md", ".yml", ".yaml", ".sh", "") {
		if name == "docs/security.md" {
			text = strings.Replace(text, "`"+word+"`", "", 1) // the page says that it is never needed
		}
		if strings.Contains(text, word) && !strings.Contains(text, "\x00") { // a compiled program contains crypto/tls
			t.Errorf("%s has %s", name, word)
		}
	}
}

// Ids of holds, of Lockers and of their channels must be unpredictable. They come from crypto/rand
// and have at least 128 bits. Only values that spread work over time, and the versions of rows, may be
// pseudo-random.
func TestIDsAreRandom(t *testing.T) {
	pseudo := []string{
		"lockcore/request.go: IntN", "lockcore/watchdog.go: Int64N", "middleware/asynqmw/configure.go: Float64", "middleware/asynqmw/delivery.go: N", "middleware/rivermw/wake.go: N",
		"internal/backend/quorum/vote.go: N", "internal/backend/rows/backend.go: N", // jitter
		"internal/backend/rows/change.go: Int64N", // a version
	}
	products, ids, pseudoUses := 0, 0, 0
	for name, text := range files(t, ".go") {
		if !product(name) {
			continue
		}
		products++
		f := parse(t, name, text)
		for _, imp := range f.Imports {
			if path := strings.Trim(imp.Path.Value, `"`); path == "crypto/rand" {
				ids += len(uses(f, imp, "rand"))
			} else if strings.HasPrefix(path, "math/rand") {
				for _, used := range uses(f, imp, "rand") {
					pseudoUses++
					if !slices.Contains(pseudo, name+": "+used) {
						t.Errorf("%s uses %s of %s", name, used, path)
					}
				}
			}
		}
	}
	if products < 50 || ids < 2 || pseudoUses < 3 {
		t.Errorf("inconclusive: %d files, %d ids", products, ids)
	}
	if n := len(rand.Text()) * 5; n < 128 { // base32
		t.Errorf("%d bits", n)
	}
}

// uses returns the names that f uses of an import.
func uses(f *ast.File, imp *ast.ImportSpec, name string) (used []string) {
	if imp.Name != nil {
		name = imp.Name.Name
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == name {
				used = append(used, s.Sel.Name)
			}
		}
		return true
	})
	return used
}

// The text of a script is a constant: a literal, a const, or an embedded file. No input of a
// program becomes part of it.
func TestScriptsAreConstants(t *testing.T) {
	all := files(t, ".go")
	constants := map[string]bool{} // folder/name
	for name, text := range all {
		addConstants(t, constants, name, text)
	}
	constants["internal/backend/redis/wire/text"] = true // text of embedded files, see TestLoadedScripts
	texts := 0
	for name, text := range all {
		if !product(name) {
			continue
		}
		ast.Inspect(parse(t, name, text), func(n ast.Node) bool {
			for _, e := range scriptTexts(n) {
				texts++
				if _, literal := e.(*ast.BasicLit); !literal && !constants[filepath.Dir(name)+"/"+source(text, e)] {
					t.Errorf("%s: the text of a script is %s, want a constant", name, source(text, e))
				}
			}
			return true
		})
	}
	if texts < 5 {
		t.Errorf("inconclusive: %d texts are sent", texts)
	}
}

// scriptTexts returns the expressions in n, a call or a list, that Redis would run as a script.
func scriptTexts(n ast.Node) (found []ast.Expr) {
	var list []ast.Expr
	switch n := n.(type) {
	case *ast.CallExpr:
		list = n.Args
		if f, ok := n.Fun.(*ast.SelectorExpr); ok {
			i := map[string]int{"NewScript": 0, "ScriptLoad": 1, "Eval": 1, "EvalRO": 1, "FCall": 1, "FunctionLoad": 1}
			if at, ok := i[f.Sel.Name]; ok && len(list) > at {
				found = append(found, list[at])
			}
		}
	case *ast.CompositeLit:
		list = n.Elts
	}
	for i, e := range list {
		if lit, ok := e.(*ast.BasicLit); ok && i+1 < len(list) {
			switch strings.ToLower(strings.Trim(lit.Value, `"`)) {
			case "eval", "eval_ro", "script", "fcall", "function":
				found = append(found, list[i+1])
			}
		}
	}
	return found
}

// addConstants adds the consts and the embedded strings of a file.
func addConstants(t *testing.T, constants map[string]bool, name, text string) {
	t.Helper()
	for _, d := range parse(t, name, text).Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST && !(g.Tok == token.VAR && strings.Contains(text, "//go:embed")) {
			continue
		}
		for _, s := range g.Specs {
			if v, ok := s.(*ast.ValueSpec); ok && (g.Tok == token.CONST || len(v.Values) == 0) {
				for _, n := range v.Names {
					constants[filepath.Dir(name)+"/"+n.Name] = true
				}
			}
		}
	}
}

// Package wire names each script by a literal, and the text of a script has only lines of the embedded
// files.
func TestLoadedScripts(t *testing.T) {
	loads := 0
	for _, file := range []string{"table.go", "grant_many.go"} {
		text := files(t, ".go")["internal/backend/redis/wire/"+file]
		ast.Inspect(parse(t, file, text), func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && source(text, call.Fun) == "script" {
				loads++
				if _, ok := call.Args[0].(*ast.BasicLit); !ok {
					t.Errorf("the name of a script is %s", source(text, call.Args[0]))
				}
			}
			return true
		})
	}
	if loads != len(wire.Scripts()) {
		t.Errorf("%d of %d scripts have been found", loads, len(wire.Scripts()))
	}
	known := map[string]bool{}
	for _, text := range files(t, ".lua") {
		for line := range strings.Lines(text) {
			known[line] = true
		}
	}
	for name, text := range wire.Texts() {
		for line := range strings.Lines(text) {
			if !known[line] {
				t.Errorf("%s.lua has the line %q, which is in no file", name, line)
			}
		}
	}
}

// source returns the text of a node. Positions in a file that is parsed alone begin at 1.
func source(text string, n ast.Node) string { return text[n.Pos()-1 : n.End()-1] }
