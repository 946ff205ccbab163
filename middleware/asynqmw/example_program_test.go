package asynqmw_test

import (
	"context"
	"log"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Run the program twice. The second run charges nothing, because payment 7 is done.
func Example() { //nolint:testableexamples // it runs until it is stopped
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())
	charge := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { log.Print("charged"); return nil })
	payment := asynqmw.Once(locks, asynqmw.ByJSON("payment", "/payment_id"), asynqmw.OnceOptions{})
	task := asynq.NewTask("charge", []byte(`{"payment_id": 7}`))
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(task); err != nil {
		log.Fatal(err)
	}
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{}))
	log.Print("stopped: ", srv.Run(payment(charge))) // ends at Ctrl-C
}
