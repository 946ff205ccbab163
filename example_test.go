package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
	"github.com/holdfast-go/holdfast/tracing/slogobs"
)

var addr string // of the Redis behind the examples

func TestMain(m *testing.M) {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		panic(err)
	}
	addr = server.Addr()
	code := m.Run()
	server.Close()
	os.Exit(code)
}

func transfer(ctx context.Context, account int) error {
	guard.MustHold(ctx, fmt.Sprintf("account:%d", account))
	return nil
}

func charge(context.Context) (string, error) { return "receipt 17", nil }

func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	locks, err := lockcore.New(rdb, lockcore.Options{
		Observer: slogobs.New(slog.Default(), slogobs.Options{}), // optional: logs losses and refusals, without the keys
	})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)

	// Alone: no two transfers of account 42 at the same time, on any machine.
	err = guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
		token, _ := guard.Token(ctx, "account:42") // grows with every hold: let the database refuse smaller ones
		fmt.Println("transferring under a token:", token > 0)
		return transfer(ctx, 42)
	})
	fmt.Println("transfer:", err)

	// Once: the second call gets what the first one returned, for a day, on any machine.
	for range 2 {
		res, err := guard.OnceValue(ctx, locks, "charge:7", guard.OnceOptions{}, charge)
		fmt.Println("charge:", res.Outcome, res.Value, err)
	}
	// Output:
	// transferring under a token: true
	// transfer: <nil>
	// charge: ran receipt 17 <nil>
	// charge: replayed receipt 17 <nil>
}

func payOut(context.Context, *asynq.Task) error { return nil }

// A payout finds its account busy, and comes back later instead of running beside the other one.
func TestPayoutBusy(t *testing.T) {
	locks := locktest.New(t)
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"),
		asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}})
	locktest.Hold(t, locks, "account:42")
	task := asynq.NewTask("payout", []byte(`{"account_id": 42}`))
	if err := account(asynq.HandlerFunc(payOut)).ProcessTask(t.Context(), task); !errors.Is(err, lockcore.ErrBusy) {
		t.Fatalf("want busy, got %v", err)
	}
}
