package sim_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// These are cases that the seeds rarely reach.

var patient = lockcore.Terms{Lease: 2 * time.Second, Wait: time.Minute}

type process struct {
	*lockcore.Locker
	faults *faulty.Network
}

func newProcess(t *testing.T, m *redistest.Memory) process {
	t.Helper()
	p := process{faults: faulty.New(t)}
	o := m.Options()
	o.Dialer = p.faults.Dial(o.Dialer)
	rdb := m.Client(t, func(c *redis.Options) { *c = *o })
	locks, err := lockcore.New(rdb, lockcore.Options{NoGroups: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.faults.Heal()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := locks.Close(ctx); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second) // pools that could not dial notice
	})
	p.Locker = locks
	return p
}

func must(t *testing.T, p process, terms lockcore.Terms) *lockcore.Lease {
	t.Helper()
	le, err := p.Acquire(t.Context(), "k", terms)
	if err != nil {
		t.Fatal(err)
	}
	return le
}

func fixed(t *testing.T, p process, terms lockcore.Terms) *lockcore.Lease {
	t.Helper()
	le, err := p.AcquireFixed(t.Context(), "k", terms)
	if err != nil {
		t.Fatal(err)
	}
	return le
}

// A late duplicate of an acquire whose hold has ended acquires nothing.
// Shows: L13
func TestLateCopyOfAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		p := newProcess(t, m)
		_ = must(t, p, patient).Release(t.Context()) // loads the script
		held := p.faults.Hold(faulty.Script("acquire"))
		le := must(t, p, patient)
		select {
		case <-held.Struck():
		default:
			t.Fatal("nothing was held")
		}
		if err := le.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		held.Deliver()
		time.Sleep(100 * time.Millisecond)
		fields, err := redistest.Fields(t.Context(), m.Client(t), "holdfast:2:x:{k}")
		if err != nil || fields["s"] != "" {
			t.Errorf("state %q, %v after a late duplicate, want a free key", fields["s"], err)
		}
	})
}

// A key that is reserved for the first waiter is not granted to a call that comes in between.
// Shows: W4
func TestReservationIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		a, first, newcomer := newProcess(t, m), newProcess(t, m), newProcess(t, m)
		le := must(t, a, patient)
		got := make(chan *lockcore.Lease, 1)
		go func() {
			le, err := first.Acquire(t.Context(), "k", patient)
			if err != nil {
				t.Error(err)
			}
			got <- le
		}()
		time.Sleep(time.Second)
		first.faults.Delay(50 * time.Millisecond)
		if err := le.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		now := patient
		now.Wait = lockcore.NoWait
		if le, err := newcomer.Acquire(t.Context(), "k", now); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("the newcomer got %v, %v", le, err)
			if le != nil {
				_ = le.Release(t.Context())
			}
		}
		first.faults.Delay(0)
		if le := <-got; le != nil {
			_ = le.Release(t.Context())
		}
	})
}

// A message that was lost with its connection delays the waiter only by the time of a new
// connection. The waiter sends its request when the subscription is active again.
// Shows: I6
func TestResubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		a, b := newProcess(t, m), newProcess(t, m)
		terms := patient
		terms.Lease = 10 * time.Second
		le := must(t, a, terms)
		got := make(chan time.Time, 1)
		go func() {
			le, err := b.Acquire(t.Context(), "k", terms)
			got <- time.Now()
			if err != nil {
				t.Error(err)
				return
			}
			_ = le.Release(t.Context())
		}()
		time.Sleep(4500 * time.Millisecond) // its next request is more than a second away
		b.faults.Down()
		start := time.Now()
		if err := le.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.faults.Heal()
		if d := (<-got).Sub(start); d > 700*time.Millisecond {
			t.Errorf("the waiter got the key after %v", d)
		}
	})
}

// A grant whose reply took as long as its lease may be used is withdrawn: no caller gets a lease
// that is about to end.
// Shows: L9
func TestLateGrantIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		p := newProcess(t, m)
		terms := lockcore.Terms{Lease: time.Second, Wait: 3 * time.Second}
		_ = fixed(t, p, terms).Release(t.Context()) // the script is loaded, and a connection is open
		p.faults.Delay(470 * time.Millisecond)      // 940 ms in both directions: less than the timeout of a command, and more than the usable part of the lease
		if le, err := p.AcquireFixed(t.Context(), "k", terms); err == nil {
			t.Errorf("granted token %d, the cause of its ctx is %v", le.Token(), context.Cause(le.Context()))
			_ = le.Release(t.Context())
		}
		p.faults.Delay(0)
		_ = fixed(t, p, terms).Release(t.Context())
	})
}
