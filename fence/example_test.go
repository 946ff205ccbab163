package fence_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/lockcore"
)

var addr string // of the Redis behind the examples

// A worker is paused for longer than its lease. When it continues, another worker has had the key
// and has written.
func ExampleRedis() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close(ctx) }()
	balances := fence.Redis{Client: rdb}

	// The first worker has the key and is paused, so that its lease is not renewed.
	first, err := locks.AcquireFixed(ctx, "account:42", lockcore.Terms{Lease: time.Second})
	if err != nil {
		panic(err)
	}
	old, err := fence.Of(first.Context(), "account:42")
	if err != nil {
		panic(err)
	}

	// The second worker gets the key at the end of that lease.
	second, err := locks.Acquire(ctx, "account:42", lockcore.Terms{Wait: 10 * time.Second})
	if err != nil {
		panic(err)
	}
	hold, err := fence.Of(second.Context(), "account:42")
	if err != nil {
		panic(err)
	}
	_, err = balances.Do(second.Context(), hold, "balance:42", "SET", 90)
	fmt.Println("second:", err)
	_ = second.Release(ctx)

	// The first worker continues with its write.
	_, err = balances.Do(ctx, old, "balance:42", "SET", 100)
	fmt.Println("first is stale:", errors.Is(err, fence.ErrStale))
	fmt.Println("first lost the key:", errors.Is(first.Release(ctx), lockcore.ErrLost))
	fmt.Println("balance:", rdb.Get(ctx, "balance:42").Val())
	// Output:
	// second: <nil>
	// first is stale: true
	// first lost the key: true
	// balance: 90
}

// A cache in this process refuses a write of an older hold.
func ExampleMemory() {
	var cache fence.Memory
	balance := 100
	set := func(h fence.Hold, to int) {
		err := cache.Do(h, func() error { balance = to; return nil })
		fmt.Println(to, err)
	}
	set(fence.Hold{Key: "account:42", Token: 7, ID: "a"}, 90)
	set(fence.Hold{Key: "account:42", Token: 8, ID: "b"}, 80)
	set(fence.Hold{Key: "account:42", Token: 7, ID: "a"}, 70)
	fmt.Println(balance)
	// Output:
	// 90 <nil>
	// 80 <nil>
	// 70 fence: token 7 of "account:42" is stale: 8 was seen
	// 80
}

// A migration creates the table of the fence: db.ExecContext(ctx, fence.Postgres.Create()).
func ExampleSQL_Create() {
	fmt.Println(fence.Postgres.Create())
	// Output:
	// DO $$ BEGIN
	//   PERFORM pg_advisory_xact_lock(5216694956355245938);
	//   CREATE TABLE IF NOT EXISTS holdfast_fence (
	//     name  bytea  NOT NULL PRIMARY KEY,
	//     token bigint NOT NULL,
	//     hold  text   NOT NULL
	//   );
	// END $$
}
