package doctor_test

import (
	"os"
	"strings"
	"testing"
)

// The program in the package documentation is example_test.go, but for the package clause and the
// name of the function.
func TestDocCode(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	ok(t, err)
	file, err := os.ReadFile("example_test.go")
	ok(t, err)
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
	got = strings.Replace(got, "func main()", "func Example()", 1)
	_, want, _ := strings.Cut(string(file), "\n")
	if want = strings.Join(strings.Fields(want), " "); got != want {
		t.Errorf("the code of the documentation is\n%s\nand example_test.go is\n%s", got, want)
	}
}
