package redis_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// In a Cluster each server has its own groups. Slots are migrated. A call that a server redirects
// is sent again alone, and each call is granted its key.
func TestGroupCluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Cluster(t)
	var heard locktest.Recorder
	l, err := lockcore.New(s.Client(t), lockcore.Options{Observer: &heard})
	ok(t, err)
	var over atomic.Bool
	var served atomic.Int64
	var calls sync.WaitGroup
	for i := range 2 * callers {
		calls.Go(func() {
			for !over.Load() {
				if err := lockAndUnlock(t.Context(), l, lockcore.Terms{Wait: lockcore.Forever})(i); err != nil {
					t.Error(err)
					return
				}
				served.Add(1)
			}
		})
	}
	for i := range 10 {
		slot := s.Slot(storedNames(event.KindExclusive, fmt.Sprint("k", i))[0])
		from := s.Master(slot)
		for _, to := range s.Masters() {
			if to != from {
				s.Migrate(slot, to)
				break
			}
		}
		at := served.Load()
		eventually(t, "100 more calls", func() bool { return served.Load() > at+100 })
	}
	over.Store(true)
	calls.Wait()
	ok(t, l.Close(t.Context()))
	groups, n := 0, 0
	for _, e := range locktest.EventsOf[event.GroupSent](&heard) {
		groups, n = groups+1, n+e.Calls
	}
	t.Logf("%d pairs, %d calls in %d groups", served.Load(), n, groups)
	if groups == 0 || n < 2*groups {
		t.Errorf("%d calls in %d groups", n, groups)
	}
}
