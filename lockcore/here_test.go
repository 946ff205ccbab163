package lockcore_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Here returns what a Locker holds and waits for, the oldest first, and nothing of another Locker.
func TestHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpace(t)
		l, other := s.Locker(lockcore.Options{}), s.Locker(lockcore.Options{})
		forever := lockcore.Terms{Wait: lockcore.Forever}
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		check := func(want ...lockcore.Here) {
			t.Helper()
			if got := l.Here(); !slices.Equal(got, want) {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		check()
		begun := func(le *lockcore.Lease, err error) *lockcore.Lease {
			t.Helper()
			ok(t, err)
			time.Sleep(time.Second)
			return le
		}
		held := begun(l.Acquire(ctx, "held", forever))
		claimed, _, err := l.Claim(ctx, "claimed", lockcore.Claim{})
		begun(claimed, err)
		five := lockcore.Limit{N: 5}
		shares := []*lockcore.Lease{begun(l.AcquireShare(ctx, "shared", five, forever)), begun(l.AcquireShare(ctx, "shared", five, forever))}
		taken := begun(other.Acquire(ctx, "taken", forever))
		for _, key := range []string{"taken", "taken", "held"} {
			calls.Go(func() {
				if le, err := l.Acquire(ctx, key, forever); err == nil {
					time.Sleep(time.Second)
					ok(t, le.Release(ctx))
				}
			})
			time.Sleep(time.Second)
		}
		all := []lockcore.Here{
			{Kind: event.KindExclusive, Key: "held", Holds: 1, HeldFor: 8 * time.Second, Token: held.Token(), Waiting: 1, OldestWait: time.Second},
			{Kind: event.KindOnce, Key: "claimed", Holds: 1, HeldFor: 7 * time.Second, Token: claimed.Token()},
			{Kind: event.KindExclusive, Key: "shared", Holds: 2, HeldFor: 6 * time.Second, Token: shares[0].Token()},
			{Kind: event.KindExclusive, Key: "taken", Waiting: 2, OldestWait: 3 * time.Second},
		}
		check(all...)

		ok(t, other.Revoke(ctx, event.KindOnce, "claimed"))
		<-claimed.Context().Done()
		ok(t, shares[0].Release(ctx))
		ok(t, held.Release(ctx)) // the waiting call gets the key
		synctest.Wait()
		got := l.Here()
		if len(got) != 3 || got[0].Key != "shared" || got[0].Holds != 1 || got[0].HeldFor >= 10*time.Second || got[1].Key != "taken" || got[2].Key != "held" || got[2].Holds != 1 || got[2].HeldFor != 0 || got[2].Token <= held.Token() || got[2].Waiting != 0 {
			t.Errorf("after a loss and releases: %+v", got)
		}
		_ = claimed.Release(ctx)
		ok(t, shares[1].Release(ctx))
		ok(t, taken.Release(ctx))
		calls.Wait()
		check()
		cancel()
	})
}

// Of many keys Here returns the 1,000 with the longest holds or waits. A hold that is not one of the
// 1,000 oldest is included if calls wait for its key.
func TestHereMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSpace(t)
		l, other := s.Locker(lockcore.Options{}), s.Locker(lockcore.Options{})
		forever := lockcore.Terms{Wait: lockcore.Forever}
		taken, err := other.Acquire(t.Context(), "taken", forever)
		ok(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() {
				if le, err := l.Acquire(ctx, "taken", forever); err == nil {
					<-ctx.Done()
					ok(t, le.Release(t.Context()))
				}
			})
		}
		time.Sleep(time.Second)
		var leases []*lockcore.Lease
		for i := range 1005 {
			le, err := l.Acquire(ctx, fmt.Sprint(i), forever)
			ok(t, err)
			leases = append(leases, le)
			time.Sleep(time.Millisecond)
		}
		ok(t, taken.Release(ctx))
		time.Sleep(100 * time.Millisecond)
		got := l.Here()
		if len(got) != 1000 || got[0].Key != "taken" || got[0].Holds != 1 || got[0].HeldFor > 100*time.Millisecond || got[0].Waiting != 1 || got[0].OldestWait < 2*time.Second {
			t.Fatalf("%d entries, the first is %+v", len(got), got[0])
		}
		for i, h := range got[1:] {
			if h.Key != fmt.Sprint(i) || h.Holds != 1 {
				t.Fatalf("entry %d is %+v", i+1, h)
			}
		}
		cancel()
		calls.Wait()
		for _, le := range leases {
			ok(t, le.Release(t.Context()))
		}
	})
}

// Here may be called while calls acquire keys, share them, hand them off and release them.
func TestHereRaces(t *testing.T) {
	l := memoryLocker(t, lockcore.MemoryOptions{})
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			for n := range 200 {
				var le *lockcore.Lease
				var err error
				if terms := (lockcore.Terms{Wait: lockcore.Forever}); i%2 == 0 {
					le, err = l.AcquireShare(t.Context(), "shared", lockcore.Limit{N: 1 + n%3}, terms)
				} else {
					le, err = l.Acquire(t.Context(), fmt.Sprint((i+n)%3), terms)
				}
				if err != nil {
					t.Error(err)
					return
				}
				if err := le.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { calls.Wait(); close(done) }()
	for ended := false; !ended; {
		for _, h := range l.Here() {
			if h.Kind != event.KindExclusive || h.Holds+h.Waiting == 0 || h.Holds > 3 || h.Holds > 1 && h.Key != "shared" || (h.Token > 0) != (h.Holds > 0) || h.Waiting == 0 && h.OldestWait > 0 {
				t.Errorf("%+v", h)
			}
		}
		select {
		case <-done:
			ended = true
		default:
		}
	}
	if left := l.Here(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}
