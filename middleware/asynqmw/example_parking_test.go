package asynqmw_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// The key of account 42 is busy when four of its tasks arrive. One of three workers waits for the
// key. The other tasks are parked, so the task of account 43 runs at once.
func ExampleConfigure_parking() {
	rdb, locks, stop := exampleLocks()
	defer stop()
	held, err := locks.Acquire(context.Background(), "account:42", lockcore.Terms{})
	if err != nil {
		log.Fatal(err)
	}
	cfg := asynq.Config{Concurrency: 3, LogLevel: asynq.FatalLevel, TaskCheckInterval: 10 * time.Millisecond}
	parking := asynqmw.Parking{
		Inspector: asynq.NewInspectorFromRedisClient(rdb),
		Weight: func(k guard.Key) int { // account 42 gets three times as many runs as others
			if k.String() == "account:42" {
				return 3
			}
			return 1
		},
	}
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.ConfigureParking(cfg, parking))

	account := asynqmw.Exclusive(locks, asynqmw.ByJSON("account", "/account_id"),
		asynqmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: time.Minute}})
	charged := make(chan string)
	charge := asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		charged <- string(t.Payload())
		return nil
	})
	if err := srv.Start(account(charge)); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()

	client := asynq.NewClientFromRedisClient(rdb)
	for _, id := range []int{42, 42, 42, 42, 43} {
		enqueue(client, asynq.NewTask("charge", fmt.Appendf(nil, `{"account_id": %d}`, id)))
	}
	fmt.Println(<-charged)
	_ = held.Release(context.Background())
	for range 4 {
		fmt.Println(<-charged)
	}
	// Output:
	// {"account_id": 43}
	// {"account_id": 42}
	// {"account_id": 42}
	// {"account_id": 42}
	// {"account_id": 42}
}
