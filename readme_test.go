package holdfast_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every Go block of the README stands word for word in a file that is compiled and tested.
func TestReadmeCode(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "middleware/*/example*_test.go", "tracing/example*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			code.WriteString(squeeze(string(b)))
		}
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) < 3 {
		t.Errorf("only %d Go blocks found", len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(code.String(), squeeze(b[1])) {
			t.Errorf("this block is in no tested file:\n%s", b[1])
		}
	}
}

// Every test that GUARANTEES.md names exists.
func TestGuaranteesNameTests(t *testing.T) {
	text, err := os.ReadFile("GUARANTEES.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir(".", func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			var b []byte
			b, err = os.ReadFile(path)
			tests.Write(b)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\bTest\w+`).FindAllString(string(text), -1)
	if len(names) < 20 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if !strings.Contains(tests.String(), "func "+name+"(") {
			t.Errorf("%s does not exist", name)
		}
	}
}

// squeeze makes indentation and line ends the same.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
