package testlevel_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// fake records how a test ends. Fatal and Skipf end the goroutine, like those of testing.T.
type fake struct {
	testing.TB
	fatal, skipped string
}

func (*fake) Helper() {}

func (f *fake) Fatal(args ...any) {
	f.fatal = fmt.Sprint(args...)
	runtime.Goexit()
}

func (f *fake) Skipf(format string, args ...any) {
	f.skipped = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// play runs do as a test at the level that value selects.
func play(t *testing.T, value string, do func(testing.TB)) *fake {
	t.Helper()
	return playWith(t, testlevel.Env, value, do)
}

// playWith runs do as a test with an environment variable.
func playWith(t *testing.T, name, value string, do func(testing.TB)) *fake {
	t.Helper()
	t.Setenv(name, value)
	f := &fake{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		do(f)
	}()
	<-done
	return f
}

func TestLevels(t *testing.T) {
	for _, tt := range []struct {
		value          string
		full, campaign bool // these tests run
		pick           int
	}{
		{"", false, false, 1},
		{"quick", false, false, 1},
		{"full", true, false, 2},
		{"campaign", true, true, 3},
	} {
		if f := play(t, tt.value, testlevel.Full); (f.skipped == "") != tt.full || f.fatal != "" {
			t.Errorf("%q: Full: %+v", tt.value, f)
		}
		if f := play(t, tt.value, testlevel.Campaign); (f.skipped == "") != tt.campaign || f.fatal != "" {
			t.Errorf("%q: Campaign: %+v", tt.value, f)
		}
		var got int
		play(t, tt.value, func(tb testing.TB) { got = testlevel.Pick(tb, 1, 2, 3) })
		if got != tt.pick {
			t.Errorf("%q: Pick: %d, want %d", tt.value, got, tt.pick)
		}
	}
}

// The reason of a skipped test names the variable and the level that the test needs.
func TestSkipReason(t *testing.T) {
	const want = "test level: runs with HOLDFAST_TEST_LEVEL=campaign, and the level is full"
	if f := play(t, "full", testlevel.Campaign); f.skipped != want {
		t.Errorf("skipped: %q, want %q", f.skipped, want)
	}
}

// An unknown level fails the test with the variable, its value and the levels that exist.
func TestUnknownLevel(t *testing.T) {
	const want = `testlevel: HOLDFAST_TEST_LEVEL is "Full": want quick, full or campaign`
	for _, do := range []func(testing.TB){
		testlevel.Full, testlevel.Campaign, func(tb testing.TB) { testlevel.Pick(tb, 1, 2, 3) },
	} {
		if f := play(t, "Full", do); f.fatal != want || f.skipped != "" {
			t.Errorf("%q, %q, want %q", f.fatal, f.skipped, want)
		}
	}
}

// With RealOnly a test in memory is skipped, and a value that is not a boolean fails it.
func TestInMemory(t *testing.T) {
	for value, want := range map[string]fake{
		"": {}, "false": {}, "0": {},
		"1":   {skipped: "real servers only: HOLDFAST_TEST_REAL_ONLY=1"},
		"yes": {fatal: `testlevel: HOLDFAST_TEST_REAL_ONLY is "yes": want true or false`},
	} {
		if f := playWith(t, testlevel.RealOnly, value, testlevel.InMemory); f.skipped != want.skipped || f.fatal != want.fatal {
			t.Errorf("%q: %q, %q", value, f.skipped, f.fatal)
		}
	}
}
