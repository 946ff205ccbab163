// Command asynq is the second program of the README.
package main

import (
	"context"
	"log"
	"os"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
	defer rdb.Close()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background()) // after the server, before rdb

	// {"payment_id": 7, "account_id": 42} has the keys charge/payment:7, account:42.
	payment := asynqmw.ByJSON("payment", "/payment_id")
	account := asynqmw.ByJSON("account", "/account_id")
	once := asynqmw.Once(locks, payment, asynqmw.OnceOptions{})
	alone := asynqmw.Exclusive(locks, account, asynqmw.ExclusiveOptions{})

	mux := asynq.NewServeMux()
	mux.Handle("charge", alone(once(asynq.HandlerFunc(charge))))
	// A busy key uses up no retry.
	c := asynqmw.Configure(asynq.Config{Concurrency: 10})
	err = asynq.NewServerFromRedisClient(rdb, c).Run(mux) // until Ctrl-C
	log.Print("stopped: ", err)
}

func charge(_ context.Context, task *asynq.Task) error {
	log.Printf("charging %s", task.Payload())
	return nil
}
