package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// verdicts are mistakes in a small module, with the report that the runner must print for each.
var verdicts = []struct {
	test, at string
	do       operation
	said     string
}{
	{"TestAdd", "sum", value("a - b"), "caught by TestAdd"},
	{"TestScript", "answer", stmt("return 2"), "caught by TestScript"},
	{"TestAdd", "sum", value(`func() int { panic("oh") }()`), "caught by TestAdd"},
	{"TestNothing", "sum", value("a - b"), "NOT CAUGHT by TestNothing"},
	{"TestSkipped", "sum", value("a - b"), "TestSkipped was skipped"},
	{"TestMissing", "sum", value("a - b"), "TestMissing did not run"},
	{"TestAdd", "sum", value("a + c"), "does not build"},
	{"TestAdd", "absent", value("a - b"), "0 markers"},
	{"TestAdd", "twice", skip(), "2 markers"},
	{"TestAdd", "sum", arg(0, "b"), "has no call"},
}

var module = map[string]string{
	"go.mod":     "module example.org/m\n\ngo 1.26\n",
	"m.go":       "package m\n\nimport _ \"embed\"\n\n//go:embed m.lua\nvar Script string\n\nfunc Add(a, b int) int { return a + b } //planted:sum\n\nvar (\n\tx = 1 //planted:twice\n\ty = 2 //planted:twice\n)\n",
	"m.lua":      "return 1 -- planted:answer\n",
	"m_test.go":  "package m\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Error(\"no\")\n\t}\n}\n\nfunc TestScript(t *testing.T) {\n\tif Script != \"return 1 -- planted:answer\\n\" {\n\t\tt.Error(Script)\n\t}\n}\n",
	"no_test.go": "package m\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) {}\n\nfunc TestSkipped(t *testing.T) { t.Skip(\"no server\") }\n",
}

// The runner reports for each mistake whether its test has found it, and counts nothing else as
// found.
func TestVerdicts(t *testing.T) {
	testlevel.Full(t)
	root := t.TempDir()
	for name, text := range module {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	marked, err := find(root)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range verdicts {
		said := "caught by " + v.test
		if err := plant(root, marked, mistake{name: "m", what: "?", pkg: ".", test: v.test, edits: []edit{{v.at, v.do}}}); err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, v.said) {
			t.Errorf("%d, %s at %s: %s; want %q", i, v.test, v.at, said, v.said)
		}
	}
	var out bytes.Buffer
	good := mistake{name: "good", what: "?", pkg: ".", test: "TestAdd", edits: []edit{{"sum", value("a - b")}}}
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
