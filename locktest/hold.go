package locktest

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testhook"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Hold makes another holder hold the exclusive key until release is called or the test ends. The
// hold competes with every call on locks. release may be called more than once. The test fails if
// the key is not free.
func Hold(tb testing.TB, locks *lockcore.Locker, key string) (release func()) {
	tb.Helper()
	lease, err := locks.Acquire(context.Background(), key, lockcore.Terms{Wait: lockcore.NoWait})
	if err != nil {
		tb.Fatalf("locktest: hold %q: %v", key, err)
	}
	return releaseOnce(tb, lease)
}

// HoldOnce makes another holder run the once key until release is called or the test ends, like
// [Hold]. A release ends the run as failed, so the next call runs the key again.
func HoldOnce(tb testing.TB, locks *lockcore.Locker, key string) (release func()) {
	tb.Helper()
	return releaseOnce(tb, claim(tb, locks, key))
}

// Abandon leaves the once key abandoned, as if a holder had crashed during its run. The test fails
// if the key is done or not free.
func Abandon(tb testing.TB, locks *lockcore.Locker, key string) {
	tb.Helper()
	if err := claim(tb, locks, key).Abandon(context.Background()); err != nil {
		tb.Fatalf("locktest: abandon %q: %v", key, err)
	}
}

// Lose ends all holds that ctx carries, as if Redis had been unavailable for too long. It cancels
// ctx with lockcore.ErrLost at once. Call it from the handler under test, or with the ctx of that
// handler.
func Lose(ctx context.Context) { testhook.Lose(ctx) }

func claim(tb testing.TB, locks *lockcore.Locker, key string) *lockcore.Lease {
	tb.Helper()
	lease, _, err := locks.Claim(context.Background(), key, lockcore.Claim{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	if err != nil {
		tb.Fatalf("locktest: claim %q: %v", key, err)
	}
	if lease == nil {
		tb.Fatalf("locktest: claim %q: the key is done", key)
	}
	return lease
}

func releaseOnce(tb testing.TB, lease *lockcore.Lease) func() {
	tb.Helper()
	release := sync.OnceFunc(func() {
		// The code under test reports a lost lease.
		_ = lease.Release(context.Background())
	})
	tb.Cleanup(release)
	return release
}
