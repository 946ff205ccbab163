package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Redis stops replying to a holder. The ctx of the hold ends with ErrLost before the lease ends on
// the server.
// Shows: I4
func TestLeaseSilence(t *testing.T) {
	for name, held := range map[string]time.Duration{"at once": 0, "after renewals": 5 * time.Minute, "under way": 10 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l, faults, _ := w.Locker(lockcore.Options{})
				other, _, _ := w.Locker(lockcore.Options{})
				le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
				time.Sleep(held)
				faults.Silence()
				<-le.Context().Done()
				if cause := context.Cause(le.Context()); !errors.Is(cause, lockcore.ErrLost) {
					t.Errorf("cause %v", cause)
				}
				if left := w.Left(other, "k"); left < 3*time.Second || left > 4*time.Second {
					t.Errorf("canceled %v before the lease ends, want the margin of a tenth and 1 %%", left)
				}
				faults.Heal()
				if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
					t.Errorf("Release: %v", err)
				}
			})
		})
	}
}

// The watchdog renews a lease for an hour. After the release the key is free.
// Shows: I5
func TestLeaseHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		for range 60 {
			time.Sleep(time.Minute)
			if _, err := other.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
				t.Fatal(err)
			}
			if left := w.Left(other, "k"); left < 19*time.Second {
				t.Fatalf("the remaining lease is %v, want at least 19s", left)
			}
		}
		if le.Context().Err() != nil {
			t.Error(context.Cause(le.Context()))
		}
		if n := count.Count("renew"); n < 320 || n > 420 {
			t.Errorf("%d scripts in an hour, want 360 renewals", n)
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		le = w.Must(other.Acquire(t.Context(), "k", noWait))
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Renewals fail for less than a lease, several times. The lease is not lost.
// Shows: I5
func TestLeaseGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		for range 20 {
			time.Sleep(9 * time.Second)
			faults.Down()
			time.Sleep(9 * time.Second)
			faults.Heal()
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The connections of three renewals in a row break. The renewal is sent again each time, although the
// watchdog sends a second one anyway. The subscription stays open, so nothing else renews the lease.
// Shows: L8
func TestLeaseRenewalCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		for n := range 30 {
			select {
			case <-faults.CutRequest(faulty.Script("renew")).Struck():
			case <-le.Context().Done():
				t.Fatal(context.Cause(le.Context()))
			}
			if n%3 == 2 {
				time.Sleep(time.Minute)
			}
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// At MaxHold the ctx of a handler that hangs ends, and the lease is not renewed. The key is free
// one lease later.
// Shows: L2
func TestLeaseMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		start := time.Now()
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{MaxHold: time.Minute}))
		<-le.Context().Done()
		if d := time.Since(start); d != time.Minute || !errors.Is(context.Cause(le.Context()), lockcore.ErrMaxHold) {
			t.Errorf("after %v: %v", d, context.Cause(le.Context()))
		}
		next := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Hour}))
		if d := time.Since(start); d > time.Minute+30*time.Second+250*time.Millisecond || !next.Abandoned() {
			t.Errorf("free after %v, abandoned %v", d, next.Abandoned())
		}
		if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrMaxHold) {
			t.Error(err)
		}
		if err := next.Release(t.Context()); err != nil {
			t.Errorf("the late release of the first holder changed the next hold: %v", err)
		}
	})
}

// A lease of AcquireFixed is not renewed, but Extend extends it. A renewal does not shorten an
// extended lease.
func TestLeaseExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{Terms: lockcore.Terms{Lease: 10 * time.Second}})
		le := w.Must(l.AcquireFixed(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(8 * time.Second)
		if err := le.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		if le.Context().Err() != nil {
			t.Fatal(context.Cause(le.Context()))
		}
		if n := count.Count("renew"); n > 3 { // Extend, and one check of the hold when the Locker has subscribed: EVALSHA, then EVAL
			t.Errorf("%d scripts", n)
		}
		<-le.Context().Done()
		if err := le.Extend(t.Context(), time.Minute); !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("Extend of a lost lease: %v", err)
		}
		_ = le.Release(t.Context())
		if err := le.Extend(t.Context(), 2*time.Hour); err == nil {
			t.Error("Extend by two hours was accepted")
		}

		kept := w.Must(l.Acquire(t.Context(), "kept", lockcore.Terms{}))
		if err := kept.Extend(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // meanwhile the watchdog renews for 10 s
		if left := w.Left(l, "kept"); left < 58*time.Minute {
			t.Errorf("a renewal made an extended lease shorter: %v left", left)
		}
		if err := kept.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A nested call finds its hold in ctx and sends no command. The last run that returns releases the
// key, whichever that is.
// Shows: L1, N1
func TestLeaseReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, count := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		outer := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		count.Reset()
		ctx, inner := outer.Context(), []*lockcore.Lease(nil)
		for range 10 {
			le := w.Must(l.Acquire(ctx, "k", noWait))
			ctx, inner = le.Context(), append(inner, le) //nolint:fatcontext // nested on purpose
		}
		if le := inner[9]; le.Token() != outer.Token() {
			t.Errorf("token %d inside, %d outside", le.Token(), outer.Token())
		}
		for _, le := range inner[:9] {
			if err := le.Release(ctx); err != nil {
				t.Error(err)
			}
		}
		if c := count.Commands(); len(c) != 0 {
			t.Errorf("10 nested acquisitions sent %v", c)
		}
		if err := outer.Release(ctx); err != nil { // the outer run returns before the last inner one
			t.Error(err)
		}
		if _, err := other.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("released while a nested run continues: %v", err)
		}
		if err := inner[9].Release(ctx); err != nil {
			t.Error(err)
		}
		le := w.Must(other.Acquire(t.Context(), "k", noWait))
		if _, err := l.Acquire(context.WithoutCancel(ctx), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("a nested call with a ctx whose hold has ended: %v, want ErrBusy", err)
		}
		_ = le.Release(ctx)
	})
}

// A call with a fresh or detached ctx, of another kind of key or on another Locker is not nested.
// Shows: N1
func TestLeaseNoReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		for name, try := range map[string]func() (*lockcore.Lease, error){
			"fresh ctx":    func() (*lockcore.Lease, error) { return l.Acquire(t.Context(), "k", noWait) },
			"other Locker": func() (*lockcore.Lease, error) { return other.Acquire(le.Context(), "k", noWait) },
			"detached":     func() (*lockcore.Lease, error) { return l.Acquire(lockcore.Detach(le.Context()), "k", noWait) },
		} {
			if _, err := try(); !errors.Is(err, lockcore.ErrBusy) {
				t.Errorf("%s: %v", name, err)
			}
		}
		once, _, err := l.Claim(le.Context(), "k", lockcore.Claim{Terms: noWait})
		if err != nil {
			t.Fatalf("a Once key of the same name is another key: %v", err)
		}
		if _, _, err := l.Claim(once.Context(), "k", lockcore.Claim{}); !errors.Is(err, lockcore.ErrNested) {
			t.Errorf("a nested claim of the same key: %v", err)
		}
		if _, ok := access.HoldOf(lockcore.Detach(once.Context()), "k"); ok {
			t.Error("a detached ctx still has a token")
		}
		_ = once.Release(t.Context())
		_ = le.Release(t.Context())
		if _, ok := access.HoldOf(le.Context(), "k"); ok {
			t.Error("a released lease still has a token")
		}
	})
}

// A nested call has a ctx without cancellation. The ctx of its run still ends when the lease is
// lost.
func TestLeaseReentryWithoutCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		outer := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		inner := w.Must(l.Acquire(context.WithoutCancel(outer.Context()), "k", noWait))
		faults.Silence()
		<-inner.Context().Done()
		if cause := context.Cause(inner.Context()); !errors.Is(cause, lockcore.ErrLost) {
			t.Error(cause)
		}
		if err := inner.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Error(err)
		}
		_ = outer.Release(t.Context())
	})
}

// A caller whose ctx is canceled keeps the key until it releases it, because the handler may still
// run.
// Shows: L1
func TestLeaseCanceledParent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		ctx, cancel := context.WithCancel(t.Context())
		le := w.Must(l.Acquire(ctx, "k", lockcore.Terms{}))
		cancel()
		<-le.Context().Done()
		time.Sleep(5 * time.Minute)
		if _, err := other.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("free although the handler has not returned: %v", err)
		}
		if err := le.Release(ctx); err != nil {
			t.Errorf("Release on a canceled ctx: %v", err)
		}
		le = w.Must(other.Acquire(t.Context(), "k", noWait))
		_ = le.Release(t.Context())
	})
}

// An abandoned key is taken over and reported to the new holder, or refused with AtMostOnce. After
// Clear it runs again.
// Shows: O5
func TestLeaseAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		most := lockcore.Claim{Terms: noWait, AtMostOnce: true}
		le, _, err := l.Claim(lockcore.WithTask(t.Context(), "task-7"), "k", most)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		_ = le.Abandon(t.Context())
		_, _, err = l.Claim(t.Context(), "k", most)
		var abandoned *lockcore.AbandonedError
		if !errors.As(err, &abandoned) || abandoned.Attempt != 1 || abandoned.Holder.Task != "task-7" || abandoned.HeldFor < time.Minute {
			t.Fatalf("%v: %+v", err, abandoned)
		}
		if h, err := l.Inspect(t.Context(), event.KindOnce, "k"); err != nil || h.State != lockcore.StateAbandoned {
			t.Errorf("after Abandon: %+v, %v", h, err)
		}
		if err := l.Clear(t.Context(), event.KindOnce, "k"); err != nil {
			t.Fatal(err)
		}
		if le, _, err = l.Claim(t.Context(), "k", most); err != nil || le.Abandoned() {
			t.Fatal(err)
		}
		_ = le.Abandon(t.Context())
		if le, _, err = l.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait}); err != nil || !le.Abandoned() || le.Attempt() != 2 {
			t.Fatalf("takeover: %v", err)
		}
		if err := le.Complete(t.Context(), []byte("r"), time.Hour); err != nil {
			t.Error(err)
		}
	})
}

// An abandoned hold is not handed off: the next call of this process takes the key over, and learns
// that the work may be half done.
// Shows: W8
func TestAbandonWithWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newSpace(t).Locker(lockcore.Options{})
		first, err := l.Acquire(t.Context(), "k", noWait)
		if err != nil {
			t.Fatal(err)
		}
		next := make(chan *lockcore.Lease)
		go func() {
			le, _ := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
			next <- le
		}()
		synctest.Wait()
		if err := first.Abandon(t.Context()); err != nil {
			t.Error(err)
		}
		le := <-next
		if !le.Abandoned() {
			t.Error("the takeover is not reported")
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A completion that arrives after the end of the lease is recorded, unless another run has begun.
// Shows: O4
func TestLeaseLateCompletion(t *testing.T) {
	for name, followed := range map[string]bool{"not followed": false, "followed": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				l, faults, _ := w.Locker(lockcore.Options{})
				other, _, _ := w.Locker(lockcore.Options{})
				le, _, err := l.Claim(t.Context(), "k", lockcore.Claim{})
				if err != nil {
					t.Fatal(err)
				}
				faults.Silence()
				time.Sleep(time.Minute)
				faults.Heal()
				var second *lockcore.Lease
				if followed {
					if second, _, err = other.Claim(t.Context(), "k", lockcore.Claim{Terms: noWait}); err != nil || !second.Abandoned() {
						t.Fatal(err)
					}
				}
				if err := le.Complete(t.Context(), []byte("late"), time.Hour); !errors.Is(err, lockcore.ErrLost) {
					t.Errorf("Complete: %v", err)
				}
				want := "late"
				if followed {
					want = "second"
					if err := second.Complete(t.Context(), []byte("second"), time.Hour); err != nil {
						t.Error(err)
					}
				}
				if _, rec, err := other.Claim(t.Context(), "k", lockcore.Claim{}); err != nil || string(rec.Data) != want {
					t.Errorf("record %v, %v", rec, err)
				}
			})
		})
	}
}
