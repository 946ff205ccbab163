package docs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// refresh runs fn without a lock if Redis is unavailable, because fn may be repeated.
func refresh(
	ctx context.Context, locks *lockcore.Locker, fn func(context.Context) error,
) error {
	began := false
	begin := func(ctx context.Context) error {
		began = true
		return fn(ctx)
	}
	err := guard.Exclusive(ctx, locks, "prices", lockcore.Terms{}, begin)
	if !began && errors.Is(err, lockcore.ErrUnavailable) {
		return fn(ctx) // nothing excludes other processes now
	}
	return err
}

// Without Redis the work runs once, without a hold. With Redis it runs under the key, also if the
// work itself finds that Redis is unavailable.
func TestRunAnyway(t *testing.T) {
	o := locktest.NewServer(t).Options()
	faults := locktest.NewFaults(t)
	o.Dialer = faults.Dial(o.Dialer)
	rdb := redis.NewClient(o)
	defer rdb.Close()
	locks, err := lockcore.New(rdb, lockcore.Options{Terms: lockcore.Terms{Wait: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(t.Context())
	runs, held := 0, false
	update := func(ctx context.Context) error {
		runs++
		_, held = guard.Token(ctx, "prices")
		return lockcore.ErrUnavailable
	}
	if err := refresh(t.Context(), locks, update); runs != 1 || !held || !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("with Redis: %d runs, held %v, %v", runs, held, err)
	}
	faults.Down()
	if err := refresh(t.Context(), locks, update); runs != 2 || held || !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("without Redis: %d runs, held %v, %v", runs-1, held, err)
	}
	faults.Heal()
}
