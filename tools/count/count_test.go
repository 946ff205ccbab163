package main

import (
	"os"
	"path/filepath"
	"testing"
)

const root = "../.."

// Each marker of a test names a promise, each promise has a test, and the page of the tests is up
// to date.
func TestPromisesHaveTests(t *testing.T) {
	r, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	want, problems, err := r.tests(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
	got, err := os.ReadFile(filepath.Join(root, testPage))
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is old: run go -C tools run ./count -write", testPage)
	}
}

// The pages together are short enough to be read. A new capability may add 1,500 words to the
// limit.
func TestPagesAreShort(t *testing.T) {
	r, err := read(root)
	if err != nil {
		t.Fatal(err)
	}
	const most = 38_500
	if n := r.written(); n > most {
		t.Errorf("the pages have %d words, must have at most %d: go -C tools run ./count counts each", n, most)
	}
}
