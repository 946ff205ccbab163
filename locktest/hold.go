package locktest

import (
	"context"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testhook"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Hold lets somebody else hold the exclusive key, until release is called or the test ends. It competes with every call
// on locks. release may be called again; the test fails if the key is not free now.
func Hold(tb testing.TB, locks *lockcore.Locker, key string) (release func()) {
	tb.Helper()
	lease, err := locks.Acquire(context.Background(), key, lockcore.Terms{Wait: lockcore.NoWait})
	if err != nil {
		tb.Fatalf("locktest: hold %q: %v", key, err)
	}
	return releaseOnce(tb, lease)
}

// HoldOnce lets somebody else run the once key, as [Hold] does an exclusive one. After release the run counts as failed:
// the key runs again.
func HoldOnce(tb testing.TB, locks *lockcore.Locker, key string) (release func()) {
	tb.Helper()
	return releaseOnce(tb, claim(tb, locks, key))
}

// Abandon leaves the once key abandoned: somebody began to run it and died. The test fails if the key is done or not
// free now.
func Abandon(tb testing.TB, locks *lockcore.Locker, key string) {
	tb.Helper()
	if err := claim(tb, locks, key).Abandon(context.Background()); err != nil {
		tb.Fatalf("locktest: abandon %q: %v", key, err)
	}
}

// Lose takes away the keys that ctx holds, as if Redis had been silent for too long: ctx is canceled with
// lockcore.ErrLost at once. Call it from the handler under test, or with the ctx that it was given.
func Lose(ctx context.Context) { testhook.Lose(ctx) }

func claim(tb testing.TB, locks *lockcore.Locker, key string) *lockcore.Lease {
	tb.Helper()
	lease, _, err := locks.Claim(context.Background(), key, lockcore.Claim{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	if err != nil {
		tb.Fatalf("locktest: claim %q: %v", key, err)
	}
	if lease == nil {
		tb.Fatalf("locktest: claim %q: it is done", key)
	}
	return lease
}

func releaseOnce(tb testing.TB, lease *lockcore.Lease) func() {
	tb.Helper()
	release := sync.OnceFunc(func() {
		// That the lease was lost is for the code under test to tell.
		_ = lease.Release(context.Background())
	})
	tb.Cleanup(release)
	return release
}
