package locktest_test

import (
	"os"
	"strings"
	"testing"
)

// The test in the package documentation is doc_test.go, except for the package clause.
func TestDocCode(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile("doc_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var code []string
	for line := range strings.Lines(string(doc)) {
		if c, ok := strings.CutPrefix(line, "//\t"); ok {
			code = append(code, c)
		}
	}
	if len(code) == 0 || len(code) > 25 {
		t.Fatalf("the documentation has %d lines of code, want 1 to 25", len(code))
	}
	got := strings.Join(strings.Fields(strings.Join(code[1:], "")), " ")
	_, want, _ := strings.Cut(string(file), "\n")
	if want = strings.Join(strings.Fields(want), " "); got != want {
		t.Errorf("the code of the documentation is\n%s\nand doc_test.go is\n%s", got, want)
	}
}
