package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// verdicts are mistakes in a small module, and what has to be said of each.
var verdicts = []struct {
	test, old, new, said string
	script               bool
}{
	{test: "TestAdd", old: "a + b", new: "a - b", said: "caught by TestAdd"},
	{test: "TestScript", old: "return 1", new: "return 2", said: "caught by TestScript", script: true},
	{test: "TestAdd", old: "a + b", new: `func() int { panic("oh") }()`, said: "caught by TestAdd"},
	{test: "TestNothing", old: "a + b", new: "a - b", said: "NOT CAUGHT by TestNothing"},
	{test: "TestSkipped", old: "a + b", new: "a - b", said: "TestSkipped was skipped"},
	{test: "TestMissing", old: "a + b", new: "a - b", said: "TestMissing did not run"},
	{test: "TestAdd", old: "a + b", new: "a + c", said: "does not build"},
	{test: "TestAdd", old: "a * b", new: "a - b", said: "has rotted"},
	{test: "TestAdd", old: "a", new: "b", said: "has rotted"},
}

var module = map[string]string{
	"go.mod":     "module example.org/m\n\ngo 1.26\n",
	"m.go":       "package m\n\nimport _ \"embed\"\n\n//go:embed m.lua\nvar Script string\n\nfunc Add(a, b int) int { return a + b }\n",
	"m.lua":      "return 1\n",
	"m_test.go":  "package m\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Error(\"no\")\n\t}\n}\n\nfunc TestScript(t *testing.T) {\n\tif Script != \"return 1\\n\" {\n\t\tt.Error(Script)\n\t}\n}\n",
	"no_test.go": "package m\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) {}\n\nfunc TestSkipped(t *testing.T) { t.Skip(\"no server\") }\n",
}

// The runner says of each mistake whether its test has found it, and takes nothing else for that.
func TestVerdicts(t *testing.T) {
	root := t.TempDir()
	for name, text := range module {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range verdicts {
		file := "m.go"
		if v.script {
			file = "m.lua"
		}
		m := mistake{name: "m", what: "?", pkg: ".", test: v.test, edits: []edit{{file, v.old, v.new}}}
		said := "caught by " + v.test
		if err := plant(root, m); err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, v.said) {
			t.Errorf("%s, %q for %q: %s; want %q", v.test, v.new, v.old, said, v.said)
		}
	}
	var out bytes.Buffer
	good := mistake{name: "good", what: "?", pkg: ".", test: "TestAdd", edits: []edit{{"m.go", "a + b", "a - b"}}}
	if err := run(&out, root, []mistake{good}, 2); err != nil || !strings.Contains(out.String(), "1 of 1 caught") {
		t.Errorf("%v: %s", err, &out)
	}
	bad := good
	bad.test = "TestNothing"
	if err := run(&out, root, []mistake{good, bad}, 2); err == nil || !strings.Contains(out.String(), "1 of 2 caught") {
		t.Errorf("%v: %s", err, &out)
	}
	bad.test = "TestMissing" // does not pass without a mistake either
	if err := run(&out, root, []mistake{bad}, 1); err == nil {
		t.Error("a test that does not exist was accepted")
	}
}
