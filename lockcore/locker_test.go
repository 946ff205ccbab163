package lockcore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// An acquire and a release are one command each. So are a claim and its completion. A replay is one
// command.
// Shows: C1
func TestCommandsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		once := func(l *lockcore.Locker, key string) {
			le, rec, err := l.Claim(t.Context(), key, lockcore.Claim{})
			if err != nil {
				t.Fatal(err)
			}
			if rec == nil {
				if err := le.Complete(t.Context(), []byte("r"), time.Hour); err != nil {
					t.Fatal(err)
				}
			}
		}
		exclusive := func(l *lockcore.Locker, key string) {
			_ = w.Must(l.Acquire(t.Context(), key, lockcore.Terms{})).Release(t.Context())
		}
		exclusive(l, "warm")
		once(l, "warm")
		exclusive(other, "k")
		held := w.Must(other.Acquire(t.Context(), "held", lockcore.Terms{}))
		_, _ = l.Acquire(t.Context(), "held", lockcore.Terms{Wait: time.Second}) // from here on l is subscribed
		_ = held.Release(t.Context())
		time.Sleep(time.Second)
		for name, c := range map[string]struct {
			do   func()
			want []string
		}{
			"acquire, release": {func() { exclusive(l, "k") }, []string{"acquire", "release"}},
			"once, new":        {func() { once(l, "k") }, []string{"acquire", "complete"}},
			"once, replay":     {func() { once(l, "warm") }, []string{"acquire"}},
			"re-entry": {func() {
				le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
				_ = w.Must(l.Acquire(le.Context(), "k", lockcore.Terms{})).Release(t.Context())
				_ = le.Release(t.Context())
			}, []string{"acquire", "release"}},
		} {
			count.Reset()
			c.do()
			time.Sleep(5 * time.Second)
			if got := count.Commands(); !slices.Equal(got, c.want) {
				t.Errorf("%s: sent %v, want %v", name, got, c.want)
			}
		}
	})
}

// When Close begins, new calls are refused and waiters return at once. Leases are renewed while
// their handlers run.
// Shows: I14
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		theirs := w.Must(other.Acquire(t.Context(), "theirs", lockcore.Terms{}))
		waiter := make(chan error)
		go func() { _, err := l.Acquire(t.Context(), "theirs", long); waiter <- err }()
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		closed := make(chan error)
		start := time.Now()
		go func() { closed <- l.Close(ctx) }()
		if err := <-waiter; !errors.Is(err, lockcore.ErrClosed) || time.Since(start) > time.Millisecond {
			t.Errorf("a waiter: %v after %v", err, time.Since(start))
		}
		if _, err := l.Acquire(t.Context(), "new", noWait); !errors.Is(err, lockcore.ErrClosed) {
			t.Errorf("a new call: %v", err)
		}
		time.Sleep(5 * time.Minute)
		if err := le.Context().Err(); err != nil {
			t.Errorf("a lease ended while its handler ran: %v", context.Cause(le.Context()))
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if h, _ := other.Inspect(t.Context(), event.KindExclusive, "k"); h.State != lockcore.StateFree {
			t.Errorf("after Close: %+v", h)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		_ = theirs.Release(t.Context())
	})
}

// When the time of Close ends, the remaining leases are canceled and no longer renewed. Their keys
// are free at the end of the lease, never sooner, because the handlers may still run.
// Shows: I14
func TestCloseInTime(t *testing.T) {
	for name, limit := range map[string]time.Duration{"deadline": 5 * time.Second, "none: one lease": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSpace(t)
				l := w.Locker(lockcore.Options{})
				other := w.Locker(lockcore.Options{})
				le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
				time.Sleep(time.Minute)
				ctx, want := t.Context(), 30*time.Second
				if limit > 0 {
					c, cancel := context.WithTimeout(ctx, limit)
					defer cancel()
					ctx, want = c, limit
				}
				start := time.Now()
				err := l.Close(ctx)
				if d := time.Since(start); err == nil || d != want {
					t.Errorf("Close: %v after %v", err, d)
				}
				if cause := context.Cause(le.Context()); !errors.Is(cause, lockcore.ErrGivenUp) {
					t.Errorf("cause %v", cause)
				}
				if _, err := other.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
					t.Errorf("free while the handler may still run: %v", err)
				}
				next := w.Must(other.Acquire(t.Context(), "k", long))
				if d := time.Since(start) - want; d > 30*time.Second+250*time.Millisecond {
					t.Errorf("free %v after Close", d)
				}
				if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrGivenUp) || errors.Is(err, lockcore.ErrNotRun) {
					t.Errorf("the late release: %v", err)
				}
				_ = next.Release(t.Context())
			})
		})
	}
}

// Redis does not reply. Close still returns within its bound.
// Shows: I14
func TestCloseWithoutRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		faults.Silence()
		_ = le.Release(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_ = l.Close(ctx)
		if d := time.Since(start); d > 3*time.Second+10*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
	})
}

// Revoke ends the ctx of the holder at once if its process is subscribed, else at its next renewal.
// The key is free only after the handler has returned.
// Shows: L5
func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		for name, c := range map[string]struct {
			terms  lockcore.Terms
			held   time.Duration
			within time.Duration
		}{
			"listening":     {lockcore.Terms{}, 15 * time.Second, time.Millisecond},
			"not listening": {lockcore.Terms{}, time.Second, 11 * time.Second},
		} {
			le := w.Must(l.Acquire(t.Context(), name, c.terms))
			time.Sleep(c.held)
			start := time.Now()
			if err := other.Revoke(t.Context(), event.KindExclusive, name); err != nil {
				t.Fatal(err)
			}
			<-le.Context().Done()
			if d := time.Since(start); d > c.within || !errors.Is(context.Cause(le.Context()), lockcore.ErrRevoked) {
				t.Errorf("%s: canceled after %v: %v", name, d, context.Cause(le.Context()))
			}
			if _, err := other.Acquire(t.Context(), name, noWait); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("%s: free while the handler runs: %v", name, err)
			}
			if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrRevoked) {
				t.Error(err)
			}
			next := w.Must(other.Acquire(t.Context(), name, noWait))
			if next.Token() <= le.Token() {
				t.Error("the token did not grow")
			}
			_ = next.Release(t.Context())
			time.Sleep(3 * time.Minute) // the Locker unsubscribes
		}
		if err := other.Revoke(t.Context(), event.KindExclusive, "nobody's"); err != nil {
			t.Error(err)
		}
	})
}

// A revocation of what an operator has seen does not end the next hold.
// Shows: L5
func TestRevokeIfUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l, other := w.Locker(lockcore.Options{}), w.Locker(lockcore.Options{})
		see := func() lockcore.Holding {
			h, err := other.Inspect(t.Context(), event.KindExclusive, "k")
			ok(t, err)
			return h
		}
		revoke := func(seen lockcore.Holding) error {
			return other.RevokeIfUnchanged(t.Context(), event.KindExclusive, "k", seen)
		}
		if err := revoke(see()); !errors.Is(err, lockcore.ErrChanged) {
			t.Errorf("a free key: %v", err)
		}
		first := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		seen := see()
		_ = first.Release(t.Context())
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		if err := revoke(seen); !errors.Is(err, lockcore.ErrChanged) || le.Context().Err() != nil {
			t.Errorf("an earlier hold: %v, the next one has %v", err, context.Cause(le.Context()))
		}
		if err := revoke(see()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if err := context.Cause(le.Context()); !errors.Is(err, lockcore.ErrRevoked) {
			t.Errorf("the hold that was seen: %v", err)
		}
	})
}

// A lease of AcquireFixed is also notified of a revocation.
// Shows: L5
func TestRevokeFixed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		kept := w.Must(l.Acquire(t.Context(), "kept", lockcore.Terms{}))
		time.Sleep(15 * time.Second) // its renewal started the subscription
		le := w.Must(l.AcquireFixed(t.Context(), "k", lockcore.Terms{}))
		start := time.Now()
		_ = other.Revoke(t.Context(), event.KindExclusive, "k")
		<-le.Context().Done()
		if d := time.Since(start); d > time.Millisecond || !errors.Is(context.Cause(le.Context()), lockcore.ErrRevoked) {
			t.Errorf("after %v: %v", d, context.Cause(le.Context()))
		}
		_ = le.Release(t.Context())
		_ = kept.Release(t.Context())
	})
}

// An exclusive key has a record, which only other software can have written. Acquire returns
// ErrRecord, and no handler runs.
func TestAcquireForgedRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		_ = w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{})).Release(t.Context())
		w.Redis.HSet(t.Context(), storedNames(event.KindExclusive, "k")[0], "s", "d", "r", "x")
		if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{}); !errors.Is(err, lockcore.ErrRecord) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Error(err)
		}
	})
}
