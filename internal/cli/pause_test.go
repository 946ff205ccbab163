package cli

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/operator"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

// An operator pauses a key and ends the pause. Meanwhile no call begins, and show names the reason.
func TestPause(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	pause := func(args ...string) (int, string, string) {
		t.Helper()
		return call{}.run(t, append([]string{"pause", "-redis", s.Addr()}, args...)...)
	}
	if code, _, errs := pause("-end", "-yes", "partner:acme"); code != exitProblem || !strings.Contains(errs, "partner:acme is not paused: nothing to end") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := pause("-end", "-for", "1h", "-yes", "partner:acme"); code != exitFailed || !strings.Contains(errs, "-for has no effect with -end") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := pause("-for", "25h", "-yes", "partner:acme"); code != exitFailed || !strings.Contains(errs, "d is 25h0m0s, must be 0 or between 1ms and 24h0m0s") {
		t.Errorf("%d %q", code, errs)
	}
	if code, _, errs := pause("partner:acme"); code != exitFailed || !strings.Contains(errs, "pass -yes") {
		t.Errorf("%d %q", code, errs)
	}
	if code, out, errs := pause("-for", "1h", "-reason", "acme is down", "-yes", "partner:acme"); code != exitOK || out != "paused\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	_, err := l.Acquire(t.Context(), "partner:acme", lockcore.Terms{Wait: lockcore.NoWait})
	if busy, ok := errors.AsType[*lockcore.BusyError](err); !ok || busy.PauseReason != "acme is down" || busy.Remaining < 59*time.Minute {
		t.Errorf("Acquire: %v", err)
	}
	_, out, _ := call{}.run(t, "show", "-redis", s.Addr(), "partner:acme")
	if !strings.Contains(out, "acme is down") || !strings.Contains(out, "cooling") {
		t.Errorf("show: %q", out)
	}
	if _, out, _ := (call{}).run(t, "ls", "-redis", s.Addr()); !strings.Contains(out, "cooling, paused  partner:acme") {
		t.Errorf("ls: %q", out)
	}
	var k keys
	code, out, _ := pause("-json", "-end", "-yes", "partner:acme")
	ok(t, json.Unmarshal([]byte(out), &k))
	if code != exitOK || k.Action != "resumed" || len(k.Keys) != 1 || k.Keys[0].PauseReason != "acme is down" || k.Keys[0].PauseLeftMS == 0 {
		t.Errorf("%d %s", code, out)
	}
	le, err := l.Acquire(t.Context(), "partner:acme", lockcore.Terms{Wait: lockcore.NoWait})
	ok(t, err)
	ok(t, le.Release(t.Context()))
}

// An operator restricts a key to a smaller limit and rate, and ends the restriction. show names it
// although the key is free.
func TestLimit(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	limit := func(args ...string) (int, string, string) {
		t.Helper()
		return call{}.run(t, append([]string{"limit", "-redis", s.Addr()}, args...)...)
	}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-end", "-yes", "partner:acme"}, exitProblem, "partner:acme is not restricted: nothing to end"},
		{[]string{"-end", "-n", "2", "-yes", "partner:acme"}, exitFailed, "-n has no effect with -end"},
		{[]string{"-yes", "partner:acme"}, exitFailed, "-n is 0 and -rate is empty, one of them must restrict the key"},
		{[]string{"-rate", "fast", "-yes", "partner:acme"}, exitFailed, `-rate is "fast", must be a number of calls and a time, such as 20/1s`},
		{[]string{"-n", "1", "-rate", "5/0s", "-yes", "partner:acme"}, exitFailed, `-rate is "5/0s", must be`},
		{[]string{"-n", "1", "-burst", "2", "-yes", "partner:acme"}, exitFailed, "-burst is 2, must be 0 without -rate"},
		{[]string{"-n", "1", "-for", "800h", "-yes", "partner:acme"}, exitFailed, "Restriction.For is 800h0m0s, must be between 1s and 720h0m0s"},
		{[]string{"-n", "1", "partner:acme"}, exitFailed, "pass -yes"},
	} {
		if code, _, errs := limit(tt.args...); code != tt.code || !strings.Contains(errs, tt.want) {
			t.Errorf("limit %v: %d %q, want %d with %q", tt.args, code, errs, tt.code, tt.want)
		}
	}
	if code, out, errs := limit("-n", "1", "-rate", "2/1m", "-reason", "acme is slow", "-yes", "partner:acme"); code != exitOK || out != "restricted\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
	_, out, _ := call{}.run(t, "show", "-redis", s.Addr(), "partner:acme")
	if !strings.Contains(out, "to 1 at a time and 2/1m0s with burst 1 for 1h0m0s: acme is slow") {
		t.Errorf("show: %q", out)
	}
	if code, out, _ := (call{}).run(t, "ls", "-redis", s.Addr()); code != exitOK || out != "" {
		t.Errorf("ls: %d %q", code, out)
	}
	if _, out, _ := (call{}).run(t, "ls", "-redis", s.Addr(), "-all"); strings.Count(out, "free, restricted  partner:acme") != 1 {
		t.Errorf("ls -all: %q", out)
	}
	five, now := lockcore.Limit{N: 5}, lockcore.Terms{Wait: lockcore.NoWait}
	first, err := l.AcquireShare(t.Context(), "partner:acme", five, now)
	ok(t, err)
	if _, err := l.AcquireShare(t.Context(), "partner:acme", five, now); !errors.Is(err, lockcore.ErrBusy) {
		t.Errorf("a second share: %v", err)
	}
	var k keys
	code, out, _ := limit("-json", "-end", "-yes", "partner:acme")
	ok(t, json.Unmarshal([]byte(out), &k))
	if want := (operator.Restricted{Limit: 1, Rate: "2/1m0s", Burst: 1, Reason: "acme is slow"}); code != exitOK || k.Action != "unrestricted" || len(k.Keys) != 1 || k.Keys[0].Restriction == nil || k.Keys[0].Restriction.LeftMS == 0 {
		t.Errorf("%d %s", code, out)
	} else if want.LeftMS = k.Keys[0].Restriction.LeftMS; *k.Keys[0].Restriction != want {
		t.Errorf("%+v, want %+v", *k.Keys[0].Restriction, want)
	}
	second, err := l.AcquireShare(t.Context(), "partner:acme", five, now)
	ok(t, err)
	ok(t, first.Release(t.Context()))
	ok(t, second.Release(t.Context()))
}
