package main

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

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
	if busy, ok := errors.AsType[*lockcore.BusyError](err); !ok || busy.Paused != "acme is down" || busy.Remaining < 59*time.Minute {
		t.Errorf("Acquire: %v", err)
	}
	_, out, _ := call{}.run(t, "show", "-redis", s.Addr(), "partner:acme")
	if !strings.Contains(out, "acme is down") || !strings.Contains(out, "cooling") {
		t.Errorf("show: %q", out)
	}
	var k keys
	code, out, _ := pause("-json", "-end", "-yes", "partner:acme")
	ok(t, json.Unmarshal([]byte(out), &k))
	if code != exitOK || k.Action != "resumed" || len(k.Keys) != 1 || k.Keys[0].Paused != "acme is down" || k.Keys[0].PauseLeftMS == 0 {
		t.Errorf("%d %s", code, out)
	}
	le, err := l.Acquire(t.Context(), "partner:acme", lockcore.Terms{Wait: lockcore.NoWait})
	ok(t, err)
	ok(t, le.Release(t.Context()))
}
