package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

// openLocks returns a Locker on the Redis at addr, and a function that closes it. If addr is empty
// the Locker is in memory: its keys are in this process only.
func openLocks(addr string) (*lockcore.Locker, func(context.Context) error, error) {
	if addr == "" {
		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
		if err != nil {
			return nil, nil, err
		}
		return locks, locks.Close, nil
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return nil, nil, errors.Join(err, rdb.Close())
	}
	return locks, func(ctx context.Context) error { return errors.Join(locks.Close(ctx), rdb.Close()) }, nil
}

// An environment variable selects the backend: Redis if it has an address, memory if it is empty.
func ExampleNewMemory() {
	ctx := context.Background()
	locks, closeLocks, err := openLocks(os.Getenv("APP_REDIS_ADDR"))
	if err != nil {
		panic(err)
	}
	defer func() {
		if err := closeLocks(ctx); err != nil {
			panic(err)
		}
	}()
	log.Print(locks) // names the backend, and for memory "this process only"
	lease, err := locks.Acquire(ctx, "account:42", lockcore.Terms{})
	if err != nil {
		panic(err)
	}
	fmt.Println(lease.Token() > 0, lease.Release(ctx))
	// Output: true <nil>
}
