// Package testlevel decides how much a test run does. The environment variable HOLDFAST_TEST_LEVEL
// selects the level:
//
//   - quick, the default, is for go test ./... and make test. No test waits for more than a second
//     of real time, and no test depends on the speed of the machine.
//   - full is for .ci/run, with the race detector and real servers. Seeds are fixed, and a test
//     that measures time compares it with a control.
//   - campaign is for make campaign: large samples, every step, random seeds, and the tests that
//     kill or stop processes and servers under load, or measure real time under faults.
//
// A test calls [Full] or [Campaign] first if it does not belong to the quick level, and [Pick] for
// its sample size. If HOLDFAST_TEST_REAL_ONLY is true, tests that use the server in memory are
// skipped. Then only the tests on real servers run, for another program (REDIS_SERVER) or with
// other rights (HOLDFAST_TEST_ACL).
//
// Call the functions of this package inside tests, not in variable initializers: go test caches
// results by the variables that the tests themselves read. Call Full and Campaign before
// synctest.Test: go test reports a test that is skipped inside a bubble as passed.
package testlevel

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

const (
	// Env is the environment variable that selects the level.
	Env = "HOLDFAST_TEST_LEVEL"
	// RealOnly is the environment variable that selects the tests on real servers.
	RealOnly = "HOLDFAST_TEST_REAL_ONLY"

	// Skipped is the prefix of the reason of a test that is skipped because the level is too low.
	Skipped = "test level:"
	// SkippedInMemory is the prefix of the reason if the test uses the server in memory.
	SkippedInMemory = "real servers only:"
)

type level int

const (
	quick level = iota
	full
	campaign
)

var names = [...]string{"quick", "full", "campaign"}

func (l level) String() string { return names[l] }

// Full skips the test at level quick.
func Full(tb testing.TB) {
	tb.Helper()
	atLeast(tb, full)
}

// Campaign skips the test at levels quick and full.
func Campaign(tb testing.TB) {
	tb.Helper()
	atLeast(tb, campaign)
}

// Pick returns the value for the selected level.
func Pick[T any](tb testing.TB, quick, full, campaign T) T {
	tb.Helper()
	return [...]T{quick, full, campaign}[selected(tb)]
}

// InMemory skips a test that uses the server in memory if only tests on real servers are to run.
func InMemory(tb testing.TB) {
	tb.Helper()
	value := os.Getenv(RealOnly)
	if value == "" {
		return
	}
	switch on, err := strconv.ParseBool(value); {
	case err != nil:
		tb.Fatal(fmt.Errorf("testlevel: %s is %q: want true or false", RealOnly, value))
	case on:
		tb.Skipf("%s %s=%s", SkippedInMemory, RealOnly, value)
	}
}

func atLeast(tb testing.TB, want level) {
	tb.Helper()
	if got := selected(tb); got < want {
		tb.Skipf("%s runs with %s=%v, and the level is %v", Skipped, Env, want, got)
	}
}

func selected(tb testing.TB) level {
	tb.Helper()
	l, err := parse(os.Getenv(Env))
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// parse treats an unset variable as quick.
func parse(value string) (level, error) {
	if value == "" {
		return quick, nil
	}
	for l, name := range names {
		if value == name {
			return level(l), nil
		}
	}
	return 0, fmt.Errorf("testlevel: %s is %q: want quick, full or campaign", Env, value)
}
