package lockcore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// Close waits for calls under way: one that is granted after all is undone, and nothing looks abandoned.
func TestCloseUndoesCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.locker(lockcore.Options{})
		other, _, _ := w.locker(lockcore.Options{})
		faults.Delay(50 * time.Millisecond)
		refused := make(chan error)
		go func() {
			_, _, err := l.Claim(t.Context(), "k", lockcore.Claim{AtMostOnce: true})
			refused <- err
		}()
		for h := (lockcore.Holding{}); h.State != lockcore.StateHeld; time.Sleep(5 * time.Millisecond) { // the reply is on its way
			h, _ = other.Inspect(t.Context(), lockcore.KindOnce, "k")
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
			t.Errorf("nothing ever ran, but: %v", err)
		} else {
			_ = le.Release(t.Context())
		}
	})
}

// A waiter that Close sends away leaves the line.
func TestCloseLeavesLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.locker(lockcore.Options{})
		other, _, _ := w.locker(lockcore.Options{})
		theirs := w.must(other.Acquire(t.Context(), "k", lockcore.Terms{}))
		refused := make(chan error)
		go func() { _, err := l.Acquire(t.Context(), "k", long); refused <- err }()
		time.Sleep(time.Second)
		go func() { _ = l.Close(t.Context()) }()
		if err := <-refused; !errors.Is(err, lockcore.ErrClosed) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if h, err := other.Inspect(t.Context(), lockcore.KindExclusive, "k"); err != nil || h.Queue != 0 {
			t.Errorf("%+v, %v", h, err)
		}
		_ = theirs.Release(t.Context())
	})
}

// A late copy of the acquire never makes a lease shorter that was extended meanwhile.
func TestLateAcquireKeepsExtension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, faults, _ := w.locker(lockcore.Options{})
		b, _, _ := w.locker(lockcore.Options{})
		_ = w.must(a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
		late := faults.Hold(locktest.Script("acquire"))
		le := w.must(a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 10 * time.Second, NoRenew: true, Wait: time.Minute}))
		if err := le.Extend(t.Context(), time.Hour); err != nil || !struckBy(late) {
			t.Fatal(err)
		}
		late.Deliver()
		time.Sleep(time.Minute)
		if _, err := b.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("granted beside a valid lease: %v", err)
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A late copy of an acquire that arrives after the data was lost holds the key for its hold again: nobody else gets in, and who comes next
// has a greater token than was given out meanwhile.
func TestLateAcquireAfterDataLoss(t *testing.T) {
	for name, between := range map[string]bool{"nobody between": false, "another between": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, faults, _ := w.locker(lockcore.Options{})
				b, _, _ := w.locker(lockcore.Options{})
				_ = w.must(a.Acquire(t.Context(), "warm", noWait)).Release(t.Context())
				late := faults.Hold(locktest.Script("acquire"))
				le := w.must(a.Acquire(t.Context(), "k", lockcore.Terms{Lease: 10 * time.Second, Wait: time.Minute}))
				if !struckBy(late) {
					t.Fatal("inconclusive")
				}
				last := le.Token()
				w.memory.Redis.FlushAll()
				if between {
					time.Sleep(time.Second) // tokens follow the server's clock
					next := w.must(b.Acquire(t.Context(), "k", noWait))
					last = next.Token()
					_ = next.Release(t.Context())
					if le.Token() >= last {
						t.Errorf("token %d, another had %d since: a resource cannot refuse the older", le.Token(), last)
					}
				}
				late.Deliver()
				time.Sleep(time.Minute)
				if le.Context().Err() != nil {
					t.Error("lost")
				}
				if _, err := b.Acquire(t.Context(), "k", noWait); !errors.Is(err, lockcore.ErrBusy) {
					t.Errorf("granted beside a valid lease: %v", err)
				}
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
				next := w.must(b.Acquire(t.Context(), "k", noWait))
				if next.Token() <= last {
					t.Errorf("token %d after %d", next.Token(), last)
				}
				_ = next.Release(t.Context())
			})
		})
	}
}

func struckBy(f *locktest.Fault) bool {
	select {
	case <-f.Struck():
		return true
	default:
		return false
	}
}

// A nested run is canceled with the lease, whatever lies between its ctx and the hold's.
func TestReentryDerivedCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.locker(lockcore.Options{})
		other, _, _ := w.locker(lockcore.Options{})
		outer := w.must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		ctx, cancel := context.WithTimeout(context.WithoutCancel(outer.Context()), time.Hour)
		defer cancel()
		inner := w.must(l.Acquire(ctx, "k", noWait))
		faults.Silence()
		next := w.must(other.Acquire(t.Context(), "k", long))
		if inner.Context().Err() == nil {
			t.Error("another holder is in, and the nested run is not canceled")
		}
		_ = next.Release(t.Context())
		_ = inner.Release(t.Context())
		_ = outer.Release(t.Context())
	})
}

// Extend does not return nil for a lease that ended while its reply was on its way.
func TestExtendTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.locker(lockcore.Options{})
		le := w.must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: 10 * time.Second, NoRenew: true}))
		if err := le.Extend(t.Context(), 10*time.Second); err != nil { // the connection stands
			t.Fatal(err)
		}
		time.Sleep(8700 * time.Millisecond) // of 8.895 s
		faults.Delay(150 * time.Millisecond)
		if err := le.Extend(t.Context(), time.Minute); !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("Extend: %v", err)
		}
		_ = le.Release(t.Context())
	})
}

// A revocation that comes while a renewal is under way is heard with its reply, not one period later.
func TestRevokeDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.locker(lockcore.Options{})
		other, _, _ := w.locker(lockcore.Options{})
		le := w.must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		time.Sleep(15 * time.Second) // it has renewed and listens
		var packets atomic.Int64
		faults.DelayFunc(func() time.Duration { // a request is quick, its reply slow
			if packets.Add(1)%2 == 0 {
				return time.Second
			}
			return 0
		})
		for before := w.left(other, "k"); ; before = w.left(other, "k") {
			time.Sleep(10 * time.Millisecond)
			if w.left(other, "k") > before {
				break // renewed on the server, and the reply is on its way
			}
		}
		start := time.Now()
		_ = other.Revoke(t.Context(), lockcore.KindExclusive, "k")
		<-le.Context().Done()
		if d := time.Since(start); d > 3*time.Second || !errors.Is(context.Cause(le.Context()), lockcore.ErrRevoked) {
			t.Errorf("canceled after %v: %v", d, context.Cause(le.Context()))
		}
		faults.DelayFunc(nil)
		_ = le.Release(t.Context())
	})
}

// Undoing what failed never crowds out a completion.
func TestEndingsHaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, faults, _ := w.locker(lockcore.Options{})
		b, _, _ := w.locker(lockcore.Options{})
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
		if h, err := b.Inspect(t.Context(), lockcore.KindOnce, "k"); err != nil || h.State != lockcore.StateDone {
			t.Errorf("the completion was dropped: %+v, %v", h, err)
		}
	})
}

// Granted is told first, also of a lease that ends at once, and Released last.
func TestEventOrder(t *testing.T) {
	testlevel.Full(t) // in real time: in a bubble the lease never ends before Release
	w, o, lost := newWorld(t), new(locktest.Recorder), 0
	l, _, _ := w.locker(lockcore.Options{Observer: o})
	for i := range 1000 {
		le := w.must(l.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait, MaxHold: 1}))
		if i%10 == 0 {
			<-le.Context().Done() // the other leases end in a race with Release
		}
		_ = le.Release(t.Context())
		got := o.Events()
		if _, ok := got[0].(lockcore.Granted); !ok {
			t.Fatalf("%T came first", got[0])
		}
		r, ok := got[len(got)-1].(lockcore.Released)
		if !ok || r.Lost != nil && len(got) < 3 {
			t.Fatalf("%T came last of %d", got[len(got)-1], len(got))
		}
		if r.Lost != nil {
			lost++
		}
		o.Reset()
	}
	if lost == 0 {
		t.Error("no lease ended on its own")
	}
}

// Close keeps its bound also when the subscription has just been cut and its new dial hangs.
func TestRealCloseWhileDialing(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	w, control := realWorld(t), redistest.NewControl(t)
	l, faults, _ := w.locker(lockcore.Options{})
	other, _, _ := w.locker(lockcore.Options{})
	le := w.must(other.Acquire(t.Context(), "k", lockcore.Terms{}))
	refused := make(chan error)
	go func() { _, err := l.Acquire(t.Context(), "k", long); refused <- err }()
	for h := (lockcore.Holding{}); h.Queue == 0; h, _ = other.Inspect(t.Context(), lockcore.KindExclusive, "k") {
		time.Sleep(10 * time.Millisecond)
	}
	faults.Silence()
	faults.Cut()
	time.Sleep(300 * time.Millisecond) // it dials again
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_ = l.Close(ctx)
	if d := time.Since(start); d > 3*time.Second+control.Late(start) { // bounded by 200 ms
		t.Errorf("Close took %v", d)
	}
	if err := <-refused; !errors.Is(err, lockcore.ErrNotRun) {
		t.Error(err)
	}
	_ = le.Release(t.Context())
}
