package cronmw_test

import (
	"os"
	"strings"
	"testing"
)

// The program in the package documentation is that of Example, which is compiled with the tests.
func TestDocProgram(t *testing.T) {
	t.Parallel()
	file := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	_, program, _ := strings.Cut(file("doc.go"), "//\tpackage main\n")
	program, _, _ = strings.Cut(program, "//\t}\n//\n")
	program = strings.ReplaceAll("\n"+program, "\n//\t", "\n")
	program = strings.ReplaceAll(program, "\n//\n", "\n\n")[1:]
	imports, body, found := strings.Cut(program, "func main() {")
	example := file("example_program_test.go")
	if !found || !strings.HasPrefix(example, "package cronmw_test\n"+imports) || !strings.HasSuffix(example, body+"}\n") {
		t.Errorf("the program of doc.go differs from example_program_test.go:\n%s", program)
	}
}
