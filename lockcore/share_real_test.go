package lockcore_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A call that needs the whole key waits among many light calls. Few calls that begin later overtake
// it: those that join a share, and those that a slow machine lets in before the request of the
// first call arrives.
func TestShareStarvation(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	const (
		lockers = 4
		turns   = 20
		hold    = 20 * time.Millisecond  // longer than a share is open for calls that join it
		slow    = 500 * time.Millisecond // a process that does not use its turn for this time loses it
	)
	for name, c := range map[string]struct {
		light, heavy testcall.Call
		callers      int // of the light calls, on all Lockers
		together     int // light calls that hold the key at the same time
	}{
		"a writer among 64 readers":        {testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}}, testcall.Call{}, 64, 64},
		"weight 3 of 3 among light shares": {testcall.Call{Limit: lockcore.Limit{N: 3}}, testcall.Call{Limit: lockcore.Limit{N: 3, Weight: 3}}, 16, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := realWorld(t)
			var (
				phase     atomic.Int64 // 2n: before turn n of the heavy call, 2n+1: it is in the queue
				overtaken atomic.Int64
				stop      atomic.Bool
				wg        sync.WaitGroup
				longest   time.Duration
				most      int64
				waited    int
				lapsed    int // turns in which the machine was so slow that the turn may have been lost
			)
			light, heavy := c.light, c.heavy
			light.Wait, heavy.Wait = lockcore.Forever, lockcore.Forever
			for range lockers {
				l, _, _ := w.Locker(lockcore.Options{})
				for range c.callers / lockers {
					wg.Go(func() {
						for !stop.Load() {
							began := phase.Load()
							le, err := light.Acquire(t.Context(), l, "k")
							if err != nil {
								t.Error(err)
								return
							}
							if began%2 == 1 && phase.Load() == began {
								overtaken.Add(1)
							}
							time.Sleep(hold)
							if err := le.Release(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
			}
			queue := make(queued, 1)
			l, _, _ := w.Locker(lockcore.Options{Observer: queue})
			for n := range int64(turns) {
				time.Sleep(hold) // the others run meanwhile
				overtaken.Store(0)
				began, done := time.Now(), make(chan struct{})
				go func() {
					defer close(done)
					le, err := heavy.Acquire(t.Context(), l, "k")
					took := time.Since(began)
					longest = max(longest, took)
					phase.Store(2*n + 2)
					if err != nil {
						t.Error(err)
						return
					}
					if took < slow {
						most = max(most, overtaken.Load())
					} else {
						lapsed++
					}
					if err := le.Release(t.Context()); err != nil {
						t.Error(err)
					}
				}()
				select {
				case <-queue:
					phase.CompareAndSwap(2*n, 2*n+1)
					waited++
				case <-done:
				}
				<-done
			}
			stop.Store(true)
			wg.Wait()
			fair := time.Duration(1+(c.callers-1)/c.together) * hold
			t.Logf("%d of %d turns waited, at most %v; in a fair queue %v; at most %d later calls of %d goroutines before one of them; %d turns lapsed",
				waited, turns, longest, fair, most, c.callers, lapsed)
			if waited < turns/2 || lapsed > turns/2 {
				t.Error("inconclusive")
			}
			if most > int64(2*c.callers) {
				t.Errorf("%d later calls of %d goroutines overtook the heavy call", most, c.callers)
			}
		})
	}
}

// queued is an Observer that receives a value when a call is in the remote queue.
type queued chan struct{}

func (queued) Start(ctx context.Context, _ event.Acquisition) context.Context { return ctx }
func (queued) Traceparent(context.Context) string                             { return "" }

func (q queued) Event(_ context.Context, e event.Event) {
	if _, ok := e.(event.Waiting); ok {
		q <- struct{}{}
	}
}
