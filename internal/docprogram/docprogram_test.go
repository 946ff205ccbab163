package docprogram_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/docprogram"
)

const docText = `// Package p prints.
//
//	package main
//
//	import "fmt"
//
//	func main() {
//		fmt.Println("a") // once
//	}
//
// The end.
package p
`

const exampleText = `package p_test

import "fmt"

func Example() {
	fmt.Println("a") // once
	// Output: a
}
`

func TestCheck(t *testing.T) {
	for _, test := range []struct {
		name, doc, example, want string
	}{
		{"equal", docText, exampleText, ""},
		{"nolint", docText, strings.Replace(exampleText, "{\n", "{ //nolint:testableexamples // it is slow\n", 1), ""},
		{"no program", "// Package p prints.\npackage p\n", exampleText, "no program"},
		{"no example", docText, "package p_test\n", "no func Example"},
		{"another statement", docText, strings.Replace(exampleText, `"a"`, `"b"`, 1), "differs"},
		{"another comment", docText, strings.Replace(exampleText, "once", "twice", 1), "differs"},
		{"another import", strings.Replace(docText, `"fmt"`, `"log"`, 1), exampleText, "imports"},
		{"too long", strings.Replace(docText, "//	func", strings.Repeat("//	//\n", 25)+"//	func", 1), exampleText, "at most 25"},
	} {
		dir := t.TempDir()
		doc, example := filepath.Join(dir, "doc.go"), filepath.Join(dir, "example_test.go")
		for file, text := range map[string]string{doc: test.doc, example: test.example} {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := docprogram.Check(doc, example, 25)
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: want %q, got %v", test.name, test.want, err)
		}
	}
}
