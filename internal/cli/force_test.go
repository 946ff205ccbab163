package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

const longLease = time.Hour

// silentSince makes a lease of longLease look as if its holder had not renewed it for 40 min.
func silentSince(t *testing.T, s *redistest.Server, stored string) {
	t.Helper()
	time.Sleep(2 * time.Second) // after a second the holder subscribes, and renews the lease once
	rdb := s.Client(t)
	ok(t, redistest.Unfold(t.Context(), rdb, stored))
	ok(t, rdb.HIncrBy(t.Context(), stored, "x", -(longLease*2/3).Microseconds()).Err())
}

func thisHolder(t *testing.T) string {
	t.Helper()
	host, err := os.Hostname()
	ok(t, err)
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// A process died under a lease of an hour. clear and revoke name clear -force, which asks for the
// holder and ends the lease. Then the next call has the key, and the old hold is lost.
func TestForce(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	lease, err := l.Acquire(lockcore.WithTask(t.Context(), "job 7 \x1b[31m"), "account:42", lockcore.Terms{Lease: longLease})
	ok(t, err)
	silentSince(t, s, "holdfast:2:x:{account:42}")
	run := func(c call, args ...string) (int, string, string) {
		t.Helper()
		return c.run(t, append([]string{args[0], "-redis", s.Addr()}, append(args[1:], "account:42")...)...)
	}
	if code, _, errs := run(call{}, "clear", "-exclusive", "-yes"); code != exitProblem || !strings.Contains(errs, "if its holder has died, see holdfast clear -force: not cleared") {
		t.Errorf("clear: %d %q", code, errs)
	}
	if code, _, errs := run(call{}, "clear", "-yes"); code != exitFailed || !strings.Contains(errs, "clear -force if its holder has died") {
		t.Errorf("clear without a kind: %d %q", code, errs)
	}
	if code, out, _ := run(call{}, "revoke"); code != exitFailed || !strings.Contains(out, "If its process has died, holdfast clear -force frees the key earlier.") {
		t.Errorf("revoke: %d %q", code, out)
	}
	name := thisHolder(t)
	for _, c := range []struct {
		call call
		args string
		errs string
	}{
		{call{}, "-force", "stdin is not a terminal: pass -holder HOST/PID"},
		{call{}, "-force -yes", "-yes does not confirm -force: pass -holder HOST/PID"},
		{call{}, "-force -holder other/1", "not cleared: the holder is " + name + `, not "other/1"`},
		{call{terminal: true, answer: "yes\n"}, "-force", "not cleared: the holder is " + name + `, not "yes"`},
		{call{terminal: true}, "-force", "stdin has ended"},
		{call{}, "-exclusive -holder " + name, "-holder needs -force"},
		{call{}, "-exclusive -even-alive", "-even-alive needs -force"},
	} {
		if code, _, errs := run(c.call, append([]string{"clear"}, strings.Fields(c.args)...)...); code != exitFailed || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: %d %q, want %q", c.args, code, errs, c.errs)
		}
	}
	ok(t, context.Cause(lease.Context()))
	code, out, errs := run(call{terminal: true, answer: name + "\n"}, "clear", "-force")
	if code != exitOK || errs != "Which holder has died? (HOST/PID) " {
		t.Errorf("%d %q", code, errs)
	}
	golden(t, "force.txt", out, s.Addr())
	<-lease.Context().Done()
	if err := lease.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("the old hold: %v", err)
	}
	if _, _, errs := run(call{}, "clear", "-force", "-holder", name); !strings.Contains(errs, "free, and -force is only for a held key: not cleared") {
		t.Errorf("again: %q", errs)
	}
}

// clear -force of a once key leaves it abandoned. -json prints the state before.
func TestForceOnce(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	_, _, err := l.Claim(t.Context(), "payment:9", lockcore.Claim{Terms: lockcore.Terms{Lease: longLease}})
	ok(t, err)
	silentSince(t, s, "holdfast:2:o:{payment:9}")
	code, out, errs := call{}.run(t, "clear", "-redis", s.Addr(), "-force", "-once", "-json", "-holder", thisHolder(t), "payment:9")
	if code != exitOK || !strings.Contains(out, `"action": "cleared"`) || !strings.Contains(out, `"lease_ms": 3600000`) || !strings.Contains(errs, "holdfast clear -once lets it run again") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	if h, err := l.Inspect(t.Context(), event.KindOnce, "payment:9"); err != nil || h.State != lockcore.StateAbandoned {
		t.Errorf("%+v, %v", h, err)
	}
}

// clear -force refuses shares, and a lease that is not renewed unless -even-alive is given.
func TestForceRefuses(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	_, err := l.AcquireShare(t.Context(), "partner:x", lockcore.Limit{N: 5}, lockcore.Terms{})
	ok(t, err)
	lease, err := l.AcquireFixed(t.Context(), "fixed", lockcore.Terms{Lease: longLease})
	ok(t, err)
	for _, c := range []struct {
		args      string
		code      int
		out, errs string
	}{
		{"partner:x", exitProblem, "shared", "-force ends no shares"},
		{"unused", exitProblem, "free", "-force is only for a held key"},
		{"fixed", exitProblem, "renewed     ", "nothing shows whether its holder has died"},
		{"-json fixed", exitProblem, `"fixed": true`, "pass -even-alive: not cleared"},
		{"-even-alive fixed", exitOK, "cleared\n", ""},
	} {
		code, out, errs := call{}.run(t, append([]string{"clear", "-redis", s.Addr(), "-force", "-holder", thisHolder(t)}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: %d %q %q", c.args, code, out, errs)
		}
	}
	<-lease.Context().Done()
	if err := context.Cause(lease.Context()); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("the old hold: %v", err)
	}
}

// clear -force waits for the next renewal of a living holder, and then refuses.
func TestForceAlive(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	lease, err := locker(t, s.Client(t), "").Acquire(t.Context(), "account:42", lockcore.Terms{Lease: 10 * time.Second})
	ok(t, err)
	code, out, errs := call{}.run(t, "clear", "-redis", s.Addr(), "-force", "-holder", thisHolder(t), "account:42")
	if code != exitProblem || !strings.Contains(out, "the command waits for that, at most for 6s") && !strings.Contains(out, "at most for 5.") || !strings.Contains(errs, "so it lives") {
		t.Errorf("%d %q %q", code, out, errs)
	}
	ok(t, context.Cause(lease.Context()))
	ok(t, lease.Release(t.Context()))
}
