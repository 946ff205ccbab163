package locktest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// In a bubble, an hour of waiting with a lease that is renewed takes almost no time.
func TestBubble(t *testing.T) {
	t.Parallel()
	outside := time.Now()
	locktest.Bubble(t, func(t *testing.T, locks *lockcore.Locker) {
		release := locktest.Hold(t, locks, "account:42")
		time.AfterFunc(time.Hour, release)
		begin := time.Now()
		lease, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: lockcore.Forever})
		if err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begin); waited < time.Hour || waited > time.Hour+time.Second {
			t.Errorf("waited for %v, want an hour", waited)
		}
		locktest.Lose(lease.Context())
		if err := lease.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
			t.Errorf("released with %v, want lost", err)
		}
	})
	if took := time.Since(outside); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
