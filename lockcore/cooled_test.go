package lockcore_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A limit for each user leaves no data a minute after the last MinHold, in Redis and in memory.
// Shows: I8
func TestMinHoldForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		onRedis, _, _ := w.Locker(lockcore.Options{})
		inMemory := memoryLocker(t, lockcore.MemoryOptions{MaxBytes: 1 << 20})
		limit := testcall.Call{Limit: lockcore.Limit{N: 5}, Terms: lockcore.Terms{MinHold: time.Second, Wait: lockcore.NoWait}}
		users := testlevel.Pick(t, 500, 500, 100_000)
		for i := range users {
			for _, l := range []*lockcore.Locker{onRedis, inMemory} {
				le, err := limit.Acquire(t.Context(), l, fmt.Sprint("user", i))
				if err != nil {
					t.Fatalf("user %d: %v", i, err)
				}
				ok(t, le.Release(t.Context()))
			}
			if i%100 == 99 { // 100 users in 10 s
				time.Sleep(10 * time.Second)
			}
		}
		time.Sleep(time.Second + time.Minute)
		if keys := w.Memory.Redis.Keys(); len(keys) > 0 {
			t.Errorf("%d keys are left, among them %q", len(keys), keys[0])
		}
	})
}

// TestMinHoldForgottenReal prints what 100,000 users leave on a server.
func TestMinHoldForgottenReal(t *testing.T) {
	testlevel.Campaign(t)
	w := realWorld(t)
	l, _, _ := w.Locker(lockcore.Options{})
	const users = 100_000
	limit := testcall.Call{Limit: lockcore.Limit{N: 5}, Terms: lockcore.Terms{MinHold: time.Second, Wait: lockcore.NoWait}}
	used := func() string { return w.Redis.InfoMap(context.Background(), "memory").Item("Memory", "used_memory") }
	before := used()
	for i := range users {
		le, err := limit.Acquire(t.Context(), l, fmt.Sprint("user", i))
		ok(t, err)
		ok(t, le.Release(t.Context()))
	}
	t.Logf("%d keys, %s bytes used, %s before", w.Redis.DBSize(t.Context()).Val(), used(), before)
	time.Sleep(time.Second + time.Minute)
	left := w.Redis.DBSize(t.Context()).Val()
	t.Logf("a minute later %d keys, %s bytes used", left, used())
	if left > users/100 { // the server removes expired keys a little later
		t.Errorf("%d keys are left", left)
	}
}
