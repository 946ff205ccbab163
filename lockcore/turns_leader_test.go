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
	"github.com/holdfast-go/holdfast/lockcore"
)

// The ctx of some calls ends before Redis replies. The calls behind them do not get ErrUnavailable
// for that.
func TestTurnsCanceledLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		theirs := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{}))
		faults.Delay(150 * time.Millisecond)
		var all sync.WaitGroup
		do := func(name string, d time.Duration, terms lockcore.Terms) {
			all.Go(func() {
				ctx := t.Context()
				if d > 0 {
					c, cancel := context.WithTimeout(ctx, d)
					defer cancel()
					ctx = c
				}
				_, err := l.Acquire(ctx, "k", terms)
				if d == 0 && errors.Is(err, lockcore.ErrUnavailable) {
					t.Errorf("%s: %v, but Redis replies to each command within 300 ms", name, err)
				}
			})
			synctest.Wait()
		}
		do("A", 50*time.Millisecond, long)
		do("B", 150*time.Millisecond, long)
		do("C", 300*time.Millisecond, long)
		do("D", 0, lockcore.Terms{Wait: time.Second})
		do("E nowait", 0, noWait)
		do("F wait 310ms", 0, lockcore.Terms{Wait: 310 * time.Millisecond})
		time.Sleep(350 * time.Millisecond)
		do("G nowait at 350", 0, noWait)
		all.Wait()
		_ = theirs.Release(t.Context())
	})
}

// The call that sent a request ends, and its grant goes to the next call. Other processes see that
// call as the holder.
func TestTurnsUnusedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		faults.Delay(50 * time.Millisecond)
		ctx, cancel := context.WithCancel(lockcore.WithTask(t.Context(), "task A"))
		var all sync.WaitGroup
		all.Go(func() { _, _ = l.Acquire(ctx, "k", long) })
		synctest.Wait()
		all.Go(func() {
			le := w.Must(l.Acquire(lockcore.WithTask(t.Context(), "task B"), "k", long))
			time.Sleep(time.Minute)
			_ = le.Release(t.Context())
		})
		synctest.Wait()
		cancel()
		time.Sleep(50 * time.Second)
		h, err := other.Inspect(t.Context(), event.KindExclusive, "k")
		if h.Holder.Task != "task B" {
			t.Errorf("after 50 s the holder is %q, %v, want task B, because A never ran", h.Holder.Task, err)
		}
		all.Wait()
	})
}

// The key has been released and its fingerprint forgotten. A claim with another fingerprint than
// that of the last holder gets no ErrMismatch.
func TestTurnsOldMismatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, faults, _ := w.Locker(lockcore.Options{})
		other, _, _ := w.Locker(lockcore.Options{})
		w.Warm(l)
		theirs := claim(t.Context(), other, "a")
		var all sync.WaitGroup
		all.Go(func() {
			c := claim(t.Context(), l, "")
			if c.lease == nil {
				t.Error(c)
				return
			}
			_ = c.lease.Release(t.Context())
		})
		time.Sleep(time.Second)
		faults.Delay(20 * time.Millisecond)
		_ = theirs.lease.Release(t.Context()) // Redis forgets the fingerprint
		start := time.Now()
		c := claim(t.Context(), l, "b")
		if c.lease == nil {
			t.Errorf("the key is free, but the claim returned after %v: %v", time.Since(start), c.err)
		} else {
			_ = c.lease.Release(t.Context())
		}
		all.Wait()
	})
}

type panicky struct {
	on    func(event.Event) bool
	armed atomic.Bool
}

func (p *panicky) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (p *panicky) Traceparent(context.Context) string                             { return "" }
func (p *panicky) Event(_ context.Context, e event.Event) {
	if p.on(e) && p.armed.CompareAndSwap(true, false) {
		panic("observer")
	}
}

// The Observer panics in the Waiting event of a call. After the release of the holder the key is
// free.
func TestTurnsObserverPanicsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		p := &panicky{on: func(e event.Event) bool { _, ok := e.(event.Waiting); return ok }}
		l, faults, _ := w.Locker(lockcore.Options{Observer: p})
		w.Warm(l)
		faults.Delay(50 * time.Millisecond)
		first := make(chan *lockcore.Lease)
		go func() { first <- w.Must(l.Acquire(t.Context(), "k", long)) }()
		synctest.Wait() // it sends a request
		p.armed.Store(true)
		recovered := make(chan any)
		go func() {
			defer func() { recovered <- recover() }()
			_, _ = l.Acquire(t.Context(), "k", long)
		}()
		le := <-first
		if <-recovered == nil {
			t.Error("the Observer did not panic")
		}
		_ = le.Release(t.Context())
		_ = w.Must(l.Acquire(t.Context(), "k", noWait)).Release(t.Context())
	})
}

// The Observer panics in an event of a waiting call. The key does not stay held.
func TestTurnsObserverPanics(t *testing.T) {
	for name, on := range map[string]func(event.Event) bool{
		"Waiting": func(e event.Event) bool { _, ok := e.(event.Waiting); return ok },
		"Granted": func(e event.Event) bool { _, ok := e.(event.Granted); return ok },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSpace(t)
				p := &panicky{on: on}
				l := w.Locker(lockcore.Options{Observer: p})
				other := w.Locker(lockcore.Options{})
				w.Warm(l)
				first := w.Must(l.Acquire(t.Context(), "k", noWait))
				p.armed.Store(true)
				done := make(chan any)
				go func() {
					defer func() { done <- recover() }()
					_, _ = l.Acquire(t.Context(), "k", long)
				}()
				time.Sleep(10 * time.Millisecond)
				_ = first.Release(t.Context())
				<-done
				time.Sleep(10 * time.Minute)
				h, err := other.Inspect(t.Context(), event.KindExclusive, "k")
				if h.State == lockcore.StateHeld {
					t.Errorf("held after 10 min: %+v, %v", h, err)
				}
				_ = w.Must(l.Acquire(t.Context(), "k", noWait)).Release(t.Context())
			})
		})
	}
}
