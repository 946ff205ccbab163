package lockcore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Close waits for calls under way. A grant that arrives during Close is withdrawn, and the key is
// not abandoned.
func TestCloseUndoesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		faults.Delay(50 * time.Millisecond)
		refused := make(chan error)
		go func() {
			_, _, err := l.Claim(t.Context(), "k", lockcore.Claim{AtMostOnce: true})
			refused <- err
		}()
		for h := (lockcore.Holding{}); h.State != lockcore.StateHeld; time.Sleep(5 * time.Millisecond) { // until the key is held and the reply is on its way
			h, _ = other.Inspect(t.Context(), event.KindOnce, "k")
		}
		closed := make(chan error)
		go func() { closed <- l.Close(t.Context()) }()
		if err := <-refused; !errors.Is(err, lockcore.ErrClosed) {
			t.Errorf("the call: %v", err)
		}
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
		if le, _, err := other.Claim(t.Context(), "k", lockcore.Claim{AtMostOnce: true, Terms: noWait}); err != nil {
			t.Errorf("no handler ran, but the next claim returned %v", err)
		} else {
			_ = le.Release(t.Context())
		}
	})
}

// A waiter that Close ends leaves the remote queue.
func TestCloseLeavesQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		other := w.Locker(lockcore.Options{})
		theirs := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{}))
		refused := make(chan error)
		go func() { _, err := l.Acquire(t.Context(), "k", long); refused <- err }()
		time.Sleep(time.Second)
		go func() { _ = l.Close(t.Context()) }()
		if err := <-refused; !errors.Is(err, lockcore.ErrClosed) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if h, err := other.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.Queue != 0 {
			t.Errorf("after Close: %+v, %v; want an empty queue", h, err)
		}
		_ = theirs.Release(t.Context())
	})
}

// A late duplicate of an acquire does not shorten a lease that was extended meanwhile.
func TestLateAcquireKeepsExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, faults, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		_ = w.Must(a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
		late := faults.Hold(faulty.Script("acquire"))
		le := w.Must(a.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 10 * time.Second, Wait: time.Minute}))
		if err := le.Extend(t.Context(), time.Hour); err != nil || !struckBy(late) {
			t.Fatal(err)
		}
		late.Deliver()
		time.Sleep(time.Minute)
		if _, err := b.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("another call during a valid lease: %v, want ErrBusy", err)
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Redis loses its data, and then a late duplicate of an acquire arrives. It grants the key to its
// hold again, so other calls get ErrBusy. The next holder has a greater token than all holders
// meanwhile.
// Shows: B7
func TestLateAcquireAfterDataLoss(t *testing.T) {
	for name, between := range map[string]bool{"nobody between": false, "another between": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, faults, _ := w.Locker(lockcore.Options{})
				b, _, _ := w.Locker(lockcore.Options{})
				_ = w.Must(a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
				late := faults.Hold(faulty.Script("acquire"))
				le := w.Must(a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 10 * time.Second, Wait: time.Minute}))
				if !struckBy(late) {
					t.Fatal("inconclusive")
				}
				last := le.Token()
				w.Memory.Redis.FlushAll()
				if between {
					time.Sleep(time.Second) // tokens follow the clock of the server
					next := w.Must(b.Acquire(t.Context(), "k", noWait))
					last = next.Token()
					_ = next.Release(t.Context())
					if le.Token() >= last {
						t.Errorf("token %d, and a later holder had %d: a resource cannot refuse the older one", le.Token(), last)
					}
				}
				late.Deliver()
				time.Sleep(time.Minute)
				if le.Context().Err() != nil {
					t.Error("the lease is lost")
				}
				if _, err := b.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
					t.Errorf("another call during a valid lease: %v, want ErrBusy", err)
				}
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
				next := w.Must(b.Acquire(t.Context(), "k", noWait))
				if next.Token() <= last {
					t.Errorf("token %d after %d", next.Token(), last)
				}
				_ = next.Release(t.Context())
			})
		})
	}
}

// The ctx of a nested run ends when the lease is lost, also if it is derived from the ctx of the
// hold by WithoutCancel and WithTimeout.
func TestReentryDerivedCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		outer := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		ctx, cancel := context.WithTimeout(context.WithoutCancel(outer.Context()), time.Hour)
		defer cancel()
		inner := w.Must(l.Acquire(ctx, "k", noWait))
		faults.Silence()
		next := w.Must(other.Acquire(t.Context(), "k", long))
		if inner.Context().Err() == nil {
			t.Error("another call has the key, but the ctx of the nested run has not ended")
		}
		_ = next.Release(t.Context())
		_ = inner.Release(t.Context())
		_ = outer.Release(t.Context())
	})
}

// A lease ends while the reply to Extend is on its way. Extend returns ErrLost and not nil.
func TestExtendTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: 10 * time.Second}))
		if err := le.Extend(t.Context(), 10*time.Second); err != nil { // opens the connection
			t.Fatal(err)
		}
		time.Sleep(8700 * time.Millisecond) // the lease is canceled after 8.895 s
		faults.Delay(150 * time.Millisecond)
		if err := le.Extend(t.Context(), time.Minute); !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		_ = le.Release(t.Context())
	})
}

// A revocation arrives while a renewal is under way. The ctx of the hold ends when the reply
// arrives, not one renewal period later.
func TestRevokeDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(15 * time.Second) // the lease is renewed, and the Locker is subscribed
		var packets atomic.Int64
		faults.DelayFunc(func() time.Duration { // requests arrive at once, replies after a second
			if packets.Add(1)%2 == 0 {
				return time.Second
			}
			return 0
		})
		for before := w.Left(other, "k"); ; before = w.Left(other, "k") {
			time.Sleep(10 * time.Millisecond)
			if w.Left(other, "k") > before {
				break // the server has renewed the lease, and the reply is on its way
			}
		}
		start := time.Now()
		_ = other.Revoke(t.Context(), event.KindExclusive, "k")
		<-le.Context().Done()
		if d := time.Since(start); d > 3*time.Second || !errors.Is(context.Cause(le.Context()), lockcore.ErrRevoked) {
			t.Errorf("canceled after %v: %v", d, context.Cause(le.Context()))
		}
		faults.DelayFunc(nil)
		_ = le.Release(t.Context())
	})
}

// Thousands of withdrawals are queued while Redis does not reply. A completion is not dropped for
// them.
func TestEndingsHaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, faults, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		le, _, err := a.Claim(t.Context(), "k", lockcore.Claim{})
		if err != nil {
			t.Fatal(err)
		}
		faults.Silence()
		var wg sync.WaitGroup
		for range 4200 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				_, _ = a.Acquire(ctx, "some", noWait)
			})
		}
		wg.Wait()
		_ = le.Complete(t.Context(), []byte("done"), time.Hour)
		faults.Heal()
		time.Sleep(15 * time.Second)
		if h, err := b.Inspect(t.Context(), event.KindOnce, "k"); err != nil || h.State != lockcore.StateDone {
			t.Errorf("the completion was dropped: %+v, %v", h, err)
		}
	})
}

// Granted is reported first, even for a lease that ends at once, and Released last.
func TestEventOrder(t *testing.T) {
	testlevel.Full(t) // in real time: in a bubble the lease never ends before Release
	w, o, lost := newSpace(t), new(locktest.Recorder), 0
	l := w.Locker(lockcore.Options{Observer: o})
	for i := range 1000 {
		le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait, MaxHold: 1}))
		if i%10 == 0 {
			<-le.Context().Done() // the other leases end in a race with Release
		}
		_ = le.Release(t.Context())
		got := o.Events()
		if _, ok := got[0].(event.Granted); !ok {
			t.Fatalf("%T came first", got[0])
		}
		r, ok := got[len(got)-1].(event.Released)
		if !ok || r.Lost != nil && len(got) < 3 {
			t.Fatalf("%T came last of %d", got[len(got)-1], len(got))
		}
		if r.Lost != nil {
			lost++
		}
		o.Reset()
	}
	if lost == 0 {
		t.Error("inconclusive: no lease ended before its release")
	}
}

// The connection of the subscription is cut, and the new dial hangs. Close still returns within its
// bound.
func TestRealCloseWhileDialing(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	w, control := realWorld(t), redistest.NewControl(t)
	l, faults, _ := w.Locker(lockcore.Options{})
	other, _, _ := w.Locker(lockcore.Options{})
	le := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{}))
	refused := make(chan error)
	go func() { _, err := l.Acquire(t.Context(), "k", long); refused <- err }()
	for h := (lockcore.Holding{}); h.Queue == 0; h, _ = other.Inspect(t.Context(), event.KindExclusive, "k") {
		time.Sleep(10 * time.Millisecond)
	}
	faults.Silence()
	faults.Cut()
	time.Sleep(300 * time.Millisecond) // it dials again
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_ = l.Close(ctx)
	if d := time.Since(start); d > 3*time.Second+control.Late(start) { // 200 ms is the bound of Close
		t.Errorf("Close took %v", d)
	}
	if err := <-refused; !errors.Is(err, lockcore.ErrNotRun) {
		t.Error(err)
	}
	_ = le.Release(t.Context())
}
