package lockcore_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// quiet is an Observer that does nothing.
type quiet struct{}

func (quiet) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (quiet) Event(context.Context, event.Event)                             {}

// hangs is an Observer whose Traceparent hangs.
type hangs struct {
	quiet
	on   atomic.Bool
	free chan struct{}
}

func (h *hangs) Traceparent(context.Context) string {
	if h.on.Load() {
		<-h.free
	}
	return ""
}

// Traceparent of the Observer hangs while the watchdog publishes a new holder. Close is not
// delayed.
func TestRenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &hangs{free: make(chan struct{})}
		l, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: o})
		ok(t, err)
		first, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		got := make(chan *lockcore.Lease)
		go func() {
			le, _ := l.Acquire(t.Context(), "k", lockcore.Terms{})
			got <- le
		}()
		synctest.Wait()
		ok(t, first.Release(t.Context()))
		second := <-got
		if second.Token() != first.Token()+1 {
			t.Fatalf("inconclusive: tokens %d and %d, the key was not handed off", first.Token(), second.Token())
		}
		o.on.Store(true)
		time.Sleep(time.Second) // the new holder is published after 250 ms
		ok(t, second.Release(t.Context()))
		start := time.Now()
		if err := l.Close(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v, want at once", err, time.Since(start))
		}
		close(o.free)
	})
}

// badValue is a ctx whose Value panics once, the next time that lockcore reads the task.
type badValue struct {
	context.Context //nolint:containedctx // badValue is a ctx itself
	on              *atomic.Bool
}

func (b badValue) Value(key any) any {
	if fmt.Sprintf("%T", key) == "lockcore.taskKey" && b.on.CompareAndSwap(true, false) {
		panic("of the ctx")
	}
	return b.Context.Value(key)
}

// The ctx of the next waiter panics inside Release of the holder. The panic reaches the caller of
// Release, and the waiters continue.
func TestReleaseNextPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{})
		held, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		time.Sleep(20 * time.Millisecond) // the batch has ended
		bad := badValue{t.Context(), new(atomic.Bool)}
		next := make(chan error)
		go func() {
			le, err := l.Acquire(bad, "k", lockcore.Terms{Wait: time.Minute})
			if err == nil {
				err = le.Release(t.Context())
			}
			next <- err
		}()
		synctest.Wait()
		bad.on.Store(true)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("inconclusive: no panic")
				}
			}()
			_ = held.Release(t.Context())
		}()
		ok(t, <-next)
		last, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		ok(t, last.Release(t.Context()))
	})
}
