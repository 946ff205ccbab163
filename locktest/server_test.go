package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noWait = lockcore.Terms{Wait: lockcore.NoWait}

// inAndOut runs a test on the real clock and in a bubble.
func inAndOut(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Run("real", test)
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
}

// A new Locker works and shares no keys with another one.
func TestNew(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		for range 2 {
			lease, err := locktest.New(t).Acquire(t.Context(), "k", noWait)
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Release(t.Context()) //nolint:errcheck // not what is tested
		}
	})
}

// Lockers of one server see each other's holds, and one gets the key that another releases.
func TestServerShared(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		s := locktest.NewServer(t)
		a, b := s.Locker(lockcore.Options{}), s.Locker(lockcore.Options{})
		release := locktest.Hold(t, a, "k")
		if _, err := b.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a key that another Locker holds: %v, want busy", err)
		}
		got := make(chan error)
		go func() {
			lease, err := b.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
			if err == nil {
				err = lease.Release(t.Context())
			}
			got <- err
		}()
		release()
		if err := <-got; err != nil {
			t.Errorf("after the release: %v", err)
		}
	})
}

// A held key conflicts with calls on the same Locker, until it is released; releasing it again is
// harmless.
func TestHold(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		locks := locktest.New(t)
		release := locktest.Hold(t, locks, "k")
		if _, err := locks.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a held key: %v, want busy", err)
		}
		release()
		release()
		locktest.Hold(t, locks, "k") // the end of the test releases it
	})
}

// HoldOnce does the same for a once key. After the release the key runs again.
func TestHoldOnce(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		locks := locktest.New(t)
		release := locktest.HoldOnce(t, locks, "k")
		if _, _, err := locks.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait}); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a once key that runs: %v, want busy", err)
		}
		release()
		lease, _, err := locks.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait})
		if err != nil {
			t.Fatal(err)
		}
		if lease.Abandoned() || lease.Attempt() != 2 {
			t.Errorf("attempt %d, abandoned %t; want 2, false", lease.Attempt(), lease.Abandoned())
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// AtMostOnce refuses an abandoned key; otherwise a call takes it over and reports that.
func TestAbandon(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		locks := locktest.New(t)
		locktest.Abandon(t, locks, "k")
		if _, _, err := locks.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait, AtMostOnce: true}); !errors.Is(err, lockcore.ErrAbandoned) {
			t.Errorf("at most once: %v, want abandoned", err)
		}
		lease, _, err := locks.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait})
		if err != nil {
			t.Fatal(err)
		}
		if !lease.Abandoned() {
			t.Error("at least once: the lease does not say that the key was abandoned")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A key that cannot be held or abandoned ends the test with the reason.
func TestHoldBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		locktest.Hold(t, locks, "k")
		wantFatal(t, "busy", func(tb testing.TB) { locktest.Hold(tb, locks, "k") })
		lease, _, err := locks.Claim(t.Context(), "done", lockcore.Claim{})
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Complete(t.Context(), []byte("r"), time.Hour); err != nil {
			t.Fatal(err)
		}
		wantFatal(t, "done", func(tb testing.TB) { locktest.HoldOnce(tb, locks, "done") })
		wantFatal(t, "done", func(tb testing.TB) { locktest.Abandon(tb, locks, "done") })
		locktest.HoldOnce(t, locks, "running")
		wantFatal(t, "busy", func(tb testing.TB) { locktest.Abandon(tb, locks, "running") })
	})
}

// Data with a TTL does not exist after it.
func TestServerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := locktest.New(t)
		for range 2 {
			lease, rec, err := locks.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait})
			if err != nil || rec != nil {
				t.Fatalf("record %v, error %v; want a lease", rec, err)
			}
			if err := lease.Complete(t.Context(), nil, time.Hour); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Hour + time.Second)
		}
	})
}

// A lease that is not released fails its test. The failure names the line that acquired the lease.
// An Observer of the test still gets all events.
func TestServerLeak(t *testing.T) {
	inAndOut(t, func(t *testing.T) {
		rec, events := &recorder{TB: t}, new(locktest.Recorder)
		locks := locktest.NewServer(rec).Locker(lockcore.Options{Observer: events})
		lease, err := locks.Acquire(t.Context(), "released", noWait)
		if err == nil {
			err = lease.Release(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _, line, _ := runtime.Caller(0)
		if _, err := locks.Acquire(t.Context(), "left", noWait); err != nil {
			t.Fatal(err)
		}
		for _, f := range slices.Backward(rec.cleanups) {
			f()
		}
		want := fmt.Sprintf("server_test.go:%d (github.com/holdfast-go/holdfast/locktest_test.TestServerLeak", line+1)
		if !strings.Contains(rec.said, "leases still held: 1") || !strings.Contains(rec.said, `"left" was not released, acquired at`) ||
			!strings.Contains(rec.said, want) || strings.Contains(rec.said, `"released"`) {
			t.Errorf("the test failed with %q, want %q", rec.said, want)
		}
		granted, released := locktest.EventsOf[event.Granted](events), locktest.EventsOf[event.Released](events)
		if len(events.Calls()) != 2 || len(granted) != 2 || len(released) != 1 {
			t.Errorf("the Observer heard %+v", events.Events())
		}
	})
}

// A lease is lost in time when Redis stops replying, and kept if Redis replies before.
func TestFaultsWithLocker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := locktest.NewFaults(t)
		locks := locktest.NewServer(t).Locker(lockcore.Options{}, faults)
		lease, err := locks.Acquire(t.Context(), "k", lockcore.Terms{Lease: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		faults.Silence()
		time.Sleep(15 * time.Second)
		faults.Heal()
		time.Sleep(time.Hour)
		if err := lease.Context().Err(); err != nil {
			t.Fatalf("after a silence of half a lease: %v", context.Cause(lease.Context()))
		}
		begin := time.Now()
		faults.Silence()
		<-lease.Context().Done()
		if took := time.Since(begin); took > 30*time.Second || took < 15*time.Second {
			t.Errorf("the ctx was canceled after %v of silence, want less than a lease", took)
		}
		if cause := context.Cause(lease.Context()); !errors.Is(cause, lockcore.ErrLost) {
			t.Errorf("cause is %v, want lost", cause)
		}
		faults.Heal()
		_ = lease.Release(t.Context()) // lost, as checked above
	})
}

// While the network is down, calls return ErrUnavailable. After Heal they work again.
func TestFaultsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, faults := locktest.NewServer(t), locktest.NewFaults(t)
		locks := server.Locker(lockcore.Options{}, faults)
		locktest.Hold(t, locks, "before")()
		faults.Down()
		if _, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: time.Second}); !errors.Is(err, lockcore.ErrUnavailable) {
			t.Errorf("while the network is down: %v, want unavailable", err)
		}
		faults.Heal()
		lease, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// recorder is a test that records how it ended.
type recorder struct {
	testing.TB
	said     string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any)         { r.said = fmt.Sprint(args...) }
func (r *recorder) Fatalf(f string, a ...any) { r.said = fmt.Sprintf(f, a...); runtime.Goexit() }

func wantFatal(t *testing.T, want string, f func(tb testing.TB)) {
	t.Helper()
	rec, done := &recorder{TB: t}, make(chan struct{})
	go func() {
		defer close(done)
		f(rec)
	}()
	<-done
	if !strings.Contains(rec.said, want) {
		t.Errorf("it ended with %q, want %q", rec.said, want)
	}
}

// Lose cancels the handler with ErrLost. The keys, also that of an outer hold, are free when the
// handler has returned.
func TestLose(t *testing.T) {
	locks := locktest.New(t)
	outer, err := locks.Acquire(t.Context(), "outer", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	inner, err := locks.Acquire(outer.Context(), "inner", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	locktest.Lose(inner.Context())
	for _, lease := range []*lockcore.Lease{inner, outer} {
		if cause := context.Cause(lease.Context()); !errors.Is(cause, lockcore.ErrLost) {
			t.Errorf("%s: %v", lease.Key(), cause)
		}
		if err := lease.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("%s: %v", lease.Key(), err)
		}
		locktest.Hold(t, locks, lease.Key()) // the key is free
	}
}
