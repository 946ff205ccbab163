package fence_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A reader is paused for longer than its lease, and a write follows. The fence refuses its late
// fill of a cache. Readers of one phase do not refuse each other, in one process or in two.
// Shows: S6
func TestSharedLateCacheFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		rdb := m.Client(t)
		var lockers []*lockcore.Locker
		for range 2 {
			l, err := lockcore.New(m.Client(t), lockcore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close(context.Background())
			lockers = append(lockers, l)
		}
		var local fence.Memory
		fill := func(h fence.Hold, value string) error {
			_, err := fence.Redis{Client: rdb}.Do(t.Context(), h, "cache:k", "SET", value)
			if other := local.Do(h, func() error { return nil }); !errors.Is(err, fence.ErrStale) != (other == nil) {
				t.Errorf("the fence in Redis returns %v, that in memory %v", err, other)
			}
			return err
		}
		hold := func(call testcall.Call, l *lockcore.Locker) (fence.Hold, *lockcore.Lease) {
			le, err := call.Acquire(t.Context(), l, "k")
			if err != nil {
				t.Fatal(err)
			}
			h, err := fence.Of(le.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			return h, le
		}
		reader := testcall.Call{Limit: lockcore.Limit{N: lockcore.Unlimited}, Fixed: true, Terms: lockcore.Terms{Lease: time.Second}}
		paused, first := hold(reader, lockers[0])
		beside, second := hold(reader, lockers[1])
		if paused != beside {
			t.Errorf("two holds of one phase: %+v, %+v", paused, beside)
		}
		for _, h := range []fence.Hold{beside, paused, beside} {
			if err := fill(h, "old"); err != nil {
				t.Error(err)
			}
		}
		_ = second.Release(t.Context())

		// The first reader is paused. Its lease ends, and a writer has the key.
		writer, le := hold(testcall.Call{Terms: lockcore.Terms{Wait: time.Minute}}, lockers[1])
		if err := fill(writer, "new"); err != nil {
			t.Error(err)
		}
		_ = le.Release(t.Context())
		if err := fill(paused, "old"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the late fill: %v", err)
		}
		_ = first.Release(t.Context())

		// A reader of the next phase fills the cache, and the writer before it is stale.
		err := guard.Shared(t.Context(), lockers[0], "k", lockcore.Terms{}, func(ctx context.Context) error {
			h, err := fence.Of(ctx, "k")
			if err != nil {
				return err
			}
			return fill(h, "new")
		})
		if err != nil {
			t.Error(err)
		}
		if err := fill(writer, "newer"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("the writer before that phase: %v", err)
		}
		if value := rdb.Get(t.Context(), "cache:k").Val(); value != "new" {
			t.Errorf("the cache has %q", value)
		}
	})
}

// A fence does not distinguish two permits of one phase: the resource accepts the writes of both,
// in any order.
// Shows: S6
func TestPermitsOfOnePhase(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	var resource fence.Memory
	write := func(ctx context.Context) {
		h, err := fence.Of(ctx, "k")
		if err := errors.Join(err, resource.Advance(h)); err != nil {
			t.Error(err)
		}
	}
	err = guard.Limited(t.Context(), locks, "k", lockcore.Limit{N: 2}, lockcore.Terms{}, func(outer context.Context) error {
		write(outer)
		return guard.Limited(t.Context(), locks, "k", lockcore.Limit{N: 2}, lockcore.Terms{}, func(ctx context.Context) error {
			write(ctx)
			write(outer)
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
}
