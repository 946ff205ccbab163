package main

import (
	"strings"
	"testing"
)

// With -v what tests log is printed too, but not what go test says of them.
func TestVerbose(t *testing.T) {
	const log = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: 42 of 42\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"ok  \tp\n"}
{"Action":"pass","Package":"p"}
`
	var out strings.Builder
	c := newTally(&out)
	c.verbose = true
	if err := c.read(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	if want := "TestA: a_test.go:1: 42 of 42\nok  \tp\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// What is counted, what is printed, and what is not.
func TestTally(t *testing.T) {
	const log = `{"Action":"build-output","ImportPath":"p/broken","Output":"broken.go:1: syntax error\n"}
{"Action":"fail","Package":"p/broken"}
{"Action":"output","Package":"p","Output":"-test.shuffle 1\n"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/x"}
{"Action":"output","Package":"p","Test":"TestA/x","Output":"chatter\n"}
{"Action":"pass","Package":"p","Test":"TestA/x"}
{"Action":"run","Package":"p","Test":"TestA/y"}
{"Action":"output","Package":"p","Test":"TestA/y","Output":"y is wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA/y"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: redis-server: not found\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"run","Package":"p","Test":"TestC"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"run","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Test":"TestD","Output":"    d_test.go:1: test level: runs with HOLDFAST_TEST_LEVEL=full, and the level is quick\n"}
{"Action":"skip","Package":"p","Test":"TestD"}
{"Action":"run","Package":"p","Test":"TestE"}
{"Action":"output","Package":"p","Test":"TestE","Output":"    e_test.go:1: real servers only: HOLDFAST_TEST_REAL_ONLY=1\n"}
{"Action":"pass","Package":"p","Test":"TestE"}
{"Action":"output","Package":"p","Output":"FAIL\tp\n"}
{"Action":"fail","Package":"p"}
{"Action":"output","Package":"q","Output":"PASS\n"}
{"Action":"output","Package":"q","Output":"ok  \tq\n"}
{"Action":"pass","Package":"q"}
{"Action":"output","Package":"r","Output":"found unexpected goroutines\n"}
{"Action":"fail","Package":"r"}
not json
`
	var out strings.Builder
	c := newTally(&out)
	if err := c.read(strings.NewReader(log)); err != nil {
		t.Fatal(err)
	}
	const want = `broken.go:1: syntax error
y is wrong
-test.shuffle 1
FAIL	p
ok  	q
found unexpected goroutines
not json
`
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
	const counts = "1 tests were SKIPPED because redis-server is not installed; CI runs them.\n" +
		"1 tests belong to a higher test level; CI runs them.\n1 passed, 3 failed, 4 skipped"
	if got := c.String(); got != counts {
		t.Errorf("counted %q, want %q", got, counts)
	}
}
