package lockcore_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The program in the package documentation is Example, so it compiles and does what it prints.
func TestDocProgram(t *testing.T) {
	doc, example := docProgram(t), readText(t, "example_program_test.go")
	example, _, _ = strings.Cut(example, "\t// Output:")
	example = strings.NewReplacer("package lockcore_test", "package main", "func Example()", "func main()").Replace(example) + "}\n"
	if doc != example {
		t.Errorf("the program in doc.go is\n%s\nExample is\n%s", doc, example)
	}
	if n := strings.Count(doc, "\n"); n > 25 {
		t.Errorf("the program in doc.go has %d lines, want at most 25", n)
	}
}

// docProgram returns the first preformatted block of doc.go.
func docProgram(t *testing.T) string {
	t.Helper()
	block := regexp.MustCompile(`(?s)//\tpackage main\n.*?//\t}\n//\n// `).FindString(readText(t, "doc.go"))
	if block == "" {
		t.Fatal("doc.go has no program")
	}
	return strings.TrimRight(regexp.MustCompile(`(?m)^//[\t ]?`).ReplaceAllString(block, ""), "\n ") + "\n"
}

func readText(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
