package lockcore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// The reply to a renewal ends a lease. A handler that stops within 100 ms causes no Overrun. One
// that stops later causes one.
func TestOverrunAfterRevocation(t *testing.T) {
	for after, want := range map[time.Duration]int{time.Millisecond: 0, 200 * time.Millisecond: 1} {
		t.Run(after.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newSpace(t)
				heard := new(locktest.Recorder)
				l := w.Locker(lockcore.Options{Observer: heard})
				other := w.Locker(lockcore.Options{})
				le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
				time.Sleep(5 * time.Second)
				if err := other.Revoke(t.Context(), event.KindExclusive, "k"); err != nil {
					t.Fatal(err)
				}
				<-le.Context().Done()
				time.Sleep(after)
				_ = le.Release(context.Background())
				if n := len(locktest.EventsOf[event.Overrun](heard)); n != want {
					t.Errorf("%d overruns, want %d", n, want)
				}
			})
		})
	}
}
