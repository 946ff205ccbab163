package lockcore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// tracer is an Observer that only traces.
type tracer struct{ event.Observer }

func (tracer) OnlyTraces() bool { return true }

// setDefault replaces the handler of the default logger, until restore is called. slog.SetDefault also
// makes package log write to the handler, and does not undo that for the old logger.
func setDefault(h slog.Handler) (restore func()) {
	old, out, flags := slog.Default(), log.Writer(), log.Flags()
	slog.SetDefault(slog.New(h))
	return func() {
		slog.SetDefault(old)
		log.SetOutput(out)
		log.SetFlags(flags)
	}
}

// logged returns what the default logger writes while do runs.
func logged(t *testing.T, do func()) string {
	t.Helper()
	var out bytes.Buffer
	defer setDefault(slog.NewTextHandler(&out, nil))()
	do()
	return out.String()
}

// lose acquires key with a lease that is not renewed, and runs on after its end.
func lose(t *testing.T, l *lockcore.Locker, key string) {
	t.Helper()
	le, err := l.AcquireFixed(t.Context(), key, lockcore.Terms{Name: "account", Lease: time.Second})
	ok(t, err)
	time.Sleep(2 * time.Second)
	wantErr(t, "Release", le.Release(t.Context()), lockcore.ErrLost)
}

// noAuth is an error reply of Redis.
type noAuth struct{}

func (noAuth) Error() string { return "NOAUTH key-7" }
func (noAuth) RedisError()   {}

// The warning that a server has failed says why without a key, and comes for each server.
func TestWarningsOfServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{})
		refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		text := logged(t, func() {
			for server, err := range map[string]error{
				"a:1": fmt.Errorf("key-7: %w", refused), "b:1": refused,
				"c:1": fmt.Errorf("key-7: %w", noAuth{}),
				"d:1": errors.New("key-7"),
			} {
				access.Of(l).Report(t.Context(), event.ServerFailed{Server: server, Err: err})
			}
			access.Of(l).Report(t.Context(), event.ServerRecovered{Server: "a:1"})
			access.Of(l).Report(t.Context(), event.ServerRecovered{Server: "b:1"})
		})
		for _, want := range []string{
			`server failed" server=a:1 error="dial tcp: connection refused"`, `server failed" server=b:1 error="dial tcp: connection refused"`,
			`server failed" server=c:1 error=NOAUTH`, `server failed" server=d:1 error=error`, `replies again" server=a:1`, `replies again" server=b:1`,
		} {
			if !strings.Contains(text, want) {
				t.Errorf("want %s in\n%s", want, text)
			}
		}
		if strings.Contains(text, "key-7") {
			t.Errorf("a key is in\n%s", text)
		}
	})
}

// Without an Observer, and with one that only traces, a Locker logs losses, overruns, takeovers and
// Misconfigured as warnings, with digests of keys. Any other Observer, also Discard, turns that off.
func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		o    event.Observer
		want bool
	}{
		"no Observer":        {nil, true},
		"one that traces":    {tracer{event.Discard}, true},
		"two that trace":     {event.Join(tracer{event.Discard}, tracer{event.Discard}), true},
		"Discard":            {event.Discard, false},
		"traces and reports": {event.Join(tracer{event.Discard}, event.Discard), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := memoryLocker(t, lockcore.MemoryOptions{Observer: c.o})
				text := logged(t, func() {
					lose(t, l, "account:42")
					_, _, err := l.Claim(access.WithFixed(t.Context()), "job", lockcore.Claim{Terms: lockcore.Terms{Lease: time.Second}})
					ok(t, err)
					time.Sleep(2 * time.Second)
					again, _, err := l.Claim(t.Context(), "job", lockcore.Claim{})
					ok(t, err)
					ok(t, again.Complete(t.Context(), []byte("r"), time.Hour))
					access.Of(l).Report(t.Context(), event.Misconfigured{Problem: "a mistake"})
				})
				for _, want := range []string{"holdfast: lease lost", "holdfast: handler ignores its context", "holdfast: took over", `problem="a mistake"`, "name=account", "key_digest="} {
					if strings.Contains(text, want) != c.want {
						t.Errorf("the record %q: want %v in\n%s", want, c.want, text)
					}
				}
				if strings.Contains(text, "account:42") || strings.Contains(text, "level=ERROR") {
					t.Errorf("a raw key or an error in\n%s", text)
				}
			})
		})
	}
}

// broken is a slog.Handler that panics.
type broken struct{ slog.Handler }

func (broken) Handle(context.Context, slog.Record) error { panic("the handler is broken") }

// A panic of the default logger's handler, which the goroutines of the Locker call too, has no effect.
func TestWarningsPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer setDefault(broken{slog.NewTextHandler(&bytes.Buffer{}, nil)})()
		l := memoryLocker(t, lockcore.MemoryOptions{})
		lose(t, l, "account:42")
		access.Of(l).Report(t.Context(), event.Misconfigured{Problem: "a mistake"})
		ok(t, leaseOn(t, l, lockcore.Claim{Terms: noWait}).Release(t.Context()))
	})
}

// A kind of warning is logged at most once a second. The next record says how many were suppressed.
func TestWarningsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{})
		report := func() { access.Of(l).Report(t.Context(), event.Misconfigured{Problem: "a mistake"}) }
		text := logged(t, func() {
			for range 5 {
				report()
			}
			time.Sleep(time.Second)
			report()
		})
		if n := strings.Count(text, "\n"); n != 2 || !strings.Contains(text, "suppressed=4") {
			t.Errorf("%d records, want 2, the second one with suppressed=4:\n%s", n, text)
		}
	})
}

// Events that are no warning cost no allocation without an Observer: a call has as many as with
// Discard, for which the Locker makes no events at all.
func TestWarningsAllocations(t *testing.T) {
	allocations := func(o event.Observer) float64 {
		l := memoryLocker(t, lockcore.MemoryOptions{Observer: o})
		ctx := context.Background()
		return testing.AllocsPerRun(500, func() {
			le, err := l.Acquire(ctx, "k", lockcore.Terms{})
			if err != nil {
				t.Fatal(err)
			}
			le.Failed(nil)
			_ = le.Release(ctx)
		})
	}
	without, discard := allocations(nil), allocations(event.Discard)
	if without > discard {
		t.Errorf("%v allocations a call without an Observer, %v with Discard", without, discard)
	}
	l := memoryLocker(t, lockcore.MemoryOptions{})
	report, ctx := access.Of(l).Report, context.Background()
	var e any = event.PayloadDiffers{Name: "n"}
	if n := testing.AllocsPerRun(500, func() { report(ctx, e) }); n != 0 {
		t.Errorf("%v allocations for an event that is no warning", n)
	}
}
