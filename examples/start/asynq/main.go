// Command asynq is a worker to start from. It charges each payment once, and runs one charge at a
// time for each account:
//
//	REDIS_ADDR=localhost:6379 go run ./examples/start/asynq
//
// docs/asynq.md explains it.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, cmp.Or(os.Getenv("REDIS_ADDR"), "localhost:6379")); err != nil {
		log.Fatal(err)
	}
}

// run serves tasks until ctx ends.
func run(ctx context.Context, addr string) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		return err
	}
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"), asynqmw.ExclusiveOptions{})
	mux := asynq.NewServeMux()
	mux.Handle("charge", account(payment(asynq.HandlerFunc(charge)))) // alone for an account, once for a payment

	cfg := asynqmw.Configure(asynq.Config{Concurrency: 10}) // with it a busy key uses up no retry
	srv := asynq.NewServerFromRedisClient(rdb, cfg)
	if err := srv.Start(mux); err != nil {
		return err
	}
	<-ctx.Done()
	srv.Shutdown() // waits for the handlers, up to cfg.ShutdownTimeout (8 s)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return locks.Close(end) // after Shutdown, before rdb.Close
}

// charge charges the payment of a task. A duplicate of the task gets the receipt of the first run.
func charge(ctx context.Context, t *asynq.Task) error {
	log.Printf("charging %s for %s", t.Payload(), asynqmw.Key(ctx)) // a provider takes the key as its idempotency key
	return asynqmw.SetResult(ctx, fmt.Appendf(nil, "receipt for %s", asynqmw.Key(ctx)))
}
