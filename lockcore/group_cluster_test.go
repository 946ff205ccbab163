package lockcore_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// groupCounter is an Observer that counts groups and their calls.
type groupCounter struct{ groups, calls atomic.Int64 }

func (*groupCounter) Start(ctx context.Context, _ lockcore.Acquisition) context.Context { return ctx }

func (*groupCounter) Traceparent(context.Context) string { return "" }

func (c *groupCounter) Event(_ context.Context, e lockcore.Event) {
	if g, ok := e.(lockcore.GroupSent); ok {
		c.groups.Add(1)
		c.calls.Add(int64(g.Calls))
	}
}

// In a cluster each server has its own groups. Slots are migrated. A call that a server redirects
// is sent again alone, and each call is granted its key.
func TestGroupCluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Cluster(t)
	var seen groupCounter
	l, err := lockcore.New(s.Client(t), lockcore.Options{Observer: &seen})
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
		slot := s.Slot(storedNames(lockcore.KindExclusive, fmt.Sprint("k", i))[0])
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
	groups, n := seen.groups.Load(), seen.calls.Load()
	t.Logf("%d pairs, %d calls in %d groups", served.Load(), n, groups)
	if groups == 0 || n < 2*groups {
		t.Errorf("%d calls in %d groups", n, groups)
	}
}
