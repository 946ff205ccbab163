package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Redisson 3.11.1: several threads held a MultiLock at once. Here 20 calls of two processes acquire
// the same three keys with a lease that is not renewed. Each call runs, one at a time.
func TestPeer_redissonMultiLockHeldByMany(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		terms := lockcore.Terms{Wait: time.Minute, Lease: 10 * time.Second}
		runs, now := 0, 0
		var wg sync.WaitGroup
		for i := range 20 {
			l := f.locks
			if i%2 == 1 {
				l = f.other
			}
			wg.Go(func() {
				err := guard.ExclusiveAll(access.WithFixed(t.Context()), l, []string{"a", "b", "c"}, terms, func(context.Context) error {
					runs++
					if now++; now != 1 {
						t.Errorf("%d at once", now)
					}
					time.Sleep(100 * time.Millisecond)
					now--
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if runs != 20 {
			t.Errorf("%d runs", runs)
		}
	})
}

// Redisson #4050: threads whose MultiLocks overlap release all their locks and try again, and none
// makes progress. Here the calls of two processes use three sets of keys that overlap in a circle.
// All run.
// Shows: N3
func TestPeer_redissonMultiLockInACircle(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		sets := [][]string{{"a", "b"}, {"b", "c"}, {"c", "a"}}
		began, runs := time.Now(), 0
		var wg sync.WaitGroup
		for i := range 30 {
			l := f.locks
			if i%2 == 1 {
				l = f.other
			}
			wg.Go(func() {
				err := guard.ExclusiveAll(t.Context(), l, sets[i%3], forever, func(context.Context) error {
					runs++
					time.Sleep(100 * time.Millisecond)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		// Any two sets share a key, so the runs follow each other and take 3 s.
		if took := time.Since(began); runs != 30 || took > 3500*time.Millisecond {
			t.Errorf("%d runs in %v", runs, took)
		}
	})
}

// RedissonMultiLock: another thread holds one of the locks, and lock waits for its release. Here
// the second of three keys is held. The call holds the first key while it waits, and the third key
// is free.
func TestPeer_redissonMultiLockOneIsTaken(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		b := f.hold(t, "b")
		var wg sync.WaitGroup
		wg.Go(func() {
			err := guard.ExclusiveAll(t.Context(), f.locks, []string{"a", "b", "c"}, forever, func(ctx context.Context) error {
				for _, key := range []string{"a", "b", "c"} {
					guard.MustHold(ctx, key)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if err := guard.Exclusive(t.Context(), f.other, "a", noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
			t.Errorf("the first key: %v", err)
		}
		f.free(t, "c")
		time.Sleep(time.Hour) // the watchdog renews the lease of the first key
		_ = b.Release(t.Context())
		wg.Wait()
		f.free(t, "a", "b", "c")
	})
}

// RedissonMultiLock.lock(leaseTime): another thread gets all locks when the lease expires. Here a
// call of another process does so, and the first call returns ErrLost.
func TestPeer_redissonMultiLockLeaseTime(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		terms := lockcore.Terms{Lease: 2 * time.Second}
		err := guard.ExclusiveAll(access.WithFixed(t.Context()), f.locks, []string{"a", "b"}, terms, func(ctx context.Context) error {
			began := time.Now()
			err := guard.ExclusiveAll(t.Context(), f.other, []string{"b", "a"}, forever, nothing)
			if took := time.Since(began); err != nil || took < 1500*time.Millisecond || took > 2500*time.Millisecond {
				t.Errorf("another call: %v after %v", err, took)
			}
			if cause := context.Cause(ctx); !errors.Is(cause, lockcore.ErrLost) {
				t.Errorf("the ctx ended with %v", cause)
			}
			return nil
		})
		if !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("got %v", err)
		}
	})
}
