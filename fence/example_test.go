package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/lockcore"
)

var addr string // of the Redis behind the examples

// A worker is paused for longer than its lease. When it goes on, another one has had the key and has written.
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

	// The first worker checks that it holds the key, and then is paused: its lease is not renewed.
	first, err := locks.Acquire(ctx, "account:42", lockcore.Terms{Lease: time.Second, NoRenew: true})
	if err != nil {
		panic(err)
	}
	old, err := fence.Of(first.Context(), "account:42")
	if err != nil {
		panic(err)
	}

	// The second one gets the key when that lease is over.
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

	// The first one wakes up. Its write was as good as on its way.
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

// A cache in this process that refuses who is late.
func ExampleGuard() {
	var cache fence.Guard
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

// withdraw is one transaction: first the fence, then what is read and written. Run it again, under the same hold, where the driver says that
// the server could not serialize it.
func withdraw(ctx context.Context, db *sql.DB, amount int64) error {
	hold, err := fence.Of(ctx, "account:42")
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after Commit
	if err := fence.Postgres.Advance(ctx, tx, hold); err != nil {
		return err // errors.Is(err, fence.ErrStale): somebody else has the account now
	}
	if _, err := tx.ExecContext(ctx, `UPDATE accounts SET balance = balance - $1 WHERE id = 42`, amount); err != nil {
		return err
	}
	return tx.Commit()
}

func ExampleSQL() {
	// Outside a hold there is nothing to write under.
	err := withdraw(context.Background(), nil, 10)
	fmt.Println(err)
	// Output: fence: ctx does not hold the key: "account:42"
}
