package lockcore_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Each wait ends at its own end, in whichever order the calls have come, and also if many end at the
// same time.
func TestWaitEnds(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.MemoryOptions{})
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		var calls sync.WaitGroup
		const n = 400
		for i := range n {
			wait := time.Duration(1+i*271%n) * time.Millisecond
			if i >= n/2 {
				wait = time.Second
			}
			calls.Go(func() {
				start := time.Now()
				_, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: wait})
				if busy := new(lockcore.BusyError); !errors.As(err, &busy) || busy.Waited != wait || time.Since(start) != wait {
					t.Errorf("after %v of %v: %v", time.Since(start), wait, err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		ok(t, le.Release(t.Context()))
	})
}

// A key is released at the moment at which the wait of the first waiter ends. Either that waiter
// gets the key, or its wait ends. The second waiter gets the key in both cases.
func TestWaitEndsAtTurn(t *testing.T) {
	testlevel.InMemory(t)
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			l := memoryLocker(t, lockcore.MemoryOptions{})
			le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
			ok(t, err)
			var calls sync.WaitGroup
			for _, wait := range []time.Duration{time.Second, lockcore.Forever} {
				calls.Go(func() {
					le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: wait})
					switch {
					case err == nil:
						err = le.Release(t.Context())
					case wait == time.Second && errors.Is(err, lockcore.ErrBusy):
						err = nil
					}
					if err != nil {
						t.Errorf("Wait %v: %v", wait, err)
					}
				})
				synctest.Wait()
			}
			time.Sleep(time.Second)
			ok(t, le.Release(t.Context()))
			calls.Wait()
		})
	}
}

// Calls begin to wait while the Locker is closed. Each of them returns ErrClosed, so none waits for
// a holder that does not stop.
func TestWaitEndsByClose(t *testing.T) {
	testlevel.InMemory(t)
	for range 20 {
		l := memoryLocker(t, lockcore.MemoryOptions{})
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		var calls sync.WaitGroup
		var begun atomic.Int64
		for range 8 {
			calls.Go(func() {
				for err := error(nil); err == nil; {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					begun.Add(1)
					_, err = l.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever})
					cancel()
					if !errors.Is(err, lockcore.ErrClosed) {
						t.Errorf("got %v", err)
					}
				}
			})
		}
		for begun.Load() < 4 {
			time.Sleep(time.Microsecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan error)
		go func() { closed <- l.Close(ctx) }()
		calls.Wait()
		ok(t, le.Release(t.Context()))
		ok(t, <-closed)
		cancel()
	}
}
