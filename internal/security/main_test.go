package security_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
)

func TestMain(m *testing.M) {
	logging.Disable() // the tests cause refused connections
	goleak.VerifyTestMain(m, redistest.PoolProbes())
}

// newLocker returns a Locker that is closed when the test ends.
func newLocker(tb testing.TB, rdb redis.UniversalClient, o lockcore.Options) *lockcore.Locker {
	tb.Helper()
	l, err := lockcore.New(rdb, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			tb.Errorf("close: %v", err)
		}
	})
	return l
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

var noWait = lockcore.Terms{Wait: lockcore.NoWait}
