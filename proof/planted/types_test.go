package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// The code with a mistake compiles: the names in a replacement still exist, and nothing becomes
// unused.
func TestMistakesCompile(t *testing.T) {
	testlevel.Full(t)
	marked, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	packages := map[string]listed{} // by directory
	exports := map[string]string{}
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, list := range marked {
		if file := filepath.ToSlash(list[0].file); strings.HasSuffix(file, ".go") {
			args = append(args, path.Join("github.com/holdfast-go/holdfast", path.Dir(file))) // this module sees those of all
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages[p.Dir], exports[p.ImportPath] = p, p.Export
	}
	fset := token.NewFileSet()
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", func(name string) (io.ReadCloser, error) {
		return os.Open(exports[name])
	})}
	for _, m := range all() {
		changed, err := m.changed(marked)
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
			continue
		}
		overlay, dirs := map[string]string{}, map[string]bool{}
		for file, text := range changed {
			file, err := filepath.Abs(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			overlay[file] = text
			if strings.HasSuffix(file, ".go") {
				dirs[filepath.Dir(file)] = true
			}
		}
		for dir := range dirs {
			p, ok := packages[dir]
			if !ok {
				t.Errorf("%s: no package in %s", m.name, dir)
				continue
			}
			var files []*ast.File
			for _, name := range p.GoFiles {
				var src any
				if text, ok := overlay[filepath.Join(dir, name)]; ok {
					src = text
				}
				f, err := parser.ParseFile(fset, filepath.Join(dir, name), src, parser.SkipObjectResolution)
				if err != nil {
					t.Fatalf("%s: %v", m.name, err)
				}
				files = append(files, f)
			}
			if _, err := conf.Check(p.ImportPath, fset, files, nil); err != nil {
				t.Errorf("%s does not compile: %v", m.name, err)
			}
		}
	}
}
