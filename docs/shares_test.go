package docs_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// callPartner runs send while at most 3 calls of the partner run, in all processes.
func callPartner(ctx context.Context, locks *lockcore.Locker, partner string, send func(context.Context) error) error {
	terms := lockcore.Terms{Name: "partner", Wait: time.Minute}
	return guard.Limited(ctx, locks, "partner:"+partner, lockcore.Limit{N: 3}, terms, send)
}

// reports runs at most 3 tasks of the type at a time, on all workers together.
func reports(mux *asynq.ServeMux, locks *lockcore.Locker, handler asynq.Handler) {
	mux.Handle("report", asynqmw.Limited(locks, asynqmw.ByType(), lockcore.Limit{N: 3}, asynqmw.ShareOptions{})(handler))
}

// crowd counts how many calls are inside at the same time.
type crowd struct{ now, most atomic.Int64 }

func (c *crowd) stay() {
	now := c.now.Add(1)
	for m := c.most.Load(); m < now && !c.most.CompareAndSwap(m, now); m = c.most.Load() {
	}
	time.Sleep(time.Millisecond)
	c.now.Add(-1)
}

// At most 3 of 12 calls of a partner are inside, and none during the maintenance of the partner.
// The same limit holds for 12 tasks of a type.
func TestAtMostN(t *testing.T) {
	locks := locktest.New(t)
	var inside crowd
	var calls sync.WaitGroup
	for range 12 {
		calls.Go(func() {
			if err := callPartner(t.Context(), locks, "acme", func(context.Context) error { inside.stay(); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
	maintain := func(context.Context) error {
		if n := inside.now.Load(); n != 0 {
			t.Errorf("%d calls are inside during the maintenance", n)
		}
		return nil
	}
	ctx := t.Context()
	terms := lockcore.Terms{Name: "partner", Wait: 5 * time.Minute} // longer than the calls that run
	err := guard.Exclusive(ctx, locks, "partner:acme", terms, maintain)
	if err != nil {
		t.Error(err)
	}
	calls.Wait()

	mux := asynq.NewServeMux()
	reports(mux, locks, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { inside.stay(); return nil }))
	for range 12 {
		calls.Go(func() {
			if err := mux.ProcessTask(t.Context(), asynq.NewTask("report", nil)); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if inside.most.Load() > 3 {
		t.Errorf("%d calls were inside", inside.most.Load())
	}
}
