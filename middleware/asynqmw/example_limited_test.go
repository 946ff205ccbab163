package asynqmw_test

import (
	"context"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// exampleServer runs n tasks of a type under a middleware, and returns the greatest number that ran
// at the same time.
func exampleServer(n int, guarded func(locks *lockcore.Locker) asynq.MiddlewareFunc) int64 {
	rdb, stop := exampleRedis()
	defer stop()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(context.Background())

	var running, most, left atomic.Int64
	left.Store(int64(n))
	done := make(chan struct{})
	mux := asynq.NewServeMux()
	mux.Handle("report", guarded(locks)(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		now := running.Add(1)
		for m := most.Load(); m < now && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		running.Add(-1)
		if left.Add(-1) == 0 {
			close(done)
		}
		return nil
	})))
	srv := asynq.NewServerFromRedisClient(rdb, asynqmw.Configure(asynq.Config{Concurrency: 8, LogLevel: asynq.FatalLevel}))
	if err := srv.Start(mux); err != nil {
		log.Fatal(err)
	}
	defer srv.Shutdown()
	client := asynq.NewClientFromRedisClient(rdb)
	for i := range n {
		if _, err := client.Enqueue(asynq.NewTask("report", fmt.Appendf(nil, `{"customer": %d}`, i%2))); err != nil {
			log.Fatal(err)
		}
	}
	<-done
	return most.Load()
}

// At most 3 tasks of a type run at a time, in all workers together.
func ExampleLimited() {
	most := exampleServer(12, func(locks *lockcore.Locker) asynq.MiddlewareFunc {
		return asynqmw.Limited(locks, asynqmw.ByType(), lockcore.Limit{N: 3}, asynqmw.ShareOptions{})
	})
	fmt.Println("more than 3:", most > 3)
	// Output: more than 3: false
}

// Each queue has its own limit.
func ExampleLimitedFunc() {
	limits := map[string]int{"default": 2, "bulk": 1}
	var limit asynqmw.LimitFunc = func(ctx context.Context, _ *asynq.Task) (lockcore.Limit, error) {
		queue, _ := asynq.GetQueueName(ctx)
		return lockcore.Limit{N: limits[queue]}, nil // 0 is an error: the task does not run
	}
	most := exampleServer(6, func(locks *lockcore.Locker) asynq.MiddlewareFunc {
		return asynqmw.LimitedFunc(locks, asynqmw.ByQueue(), limit, asynqmw.ShareOptions{})
	})
	fmt.Println("more than 2:", most > 2)
	// Output: more than 2: false
}

// At most 2 reports of a customer run at a time, and at most 3 of all customers. A task that waits for
// its customer occupies none of the 3 permits.
func ExampleLimitedAll() {
	customer := asynqmw.ByJSON("customer", "/customer")
	var limits asynqmw.LimitsFunc = func(ctx context.Context, t *asynq.Task) ([]asynqmw.KeyLimit, error) {
		key, err := customer(ctx, t)
		return []asynqmw.KeyLimit{
			{Key: key, Limit: lockcore.Limit{N: 2}},
			{Key: guard.Key{Class: "reports", ID: "all"}, Limit: lockcore.Limit{N: 3}},
		}, err
	}
	most := exampleServer(12, func(locks *lockcore.Locker) asynq.MiddlewareFunc {
		return asynqmw.LimitedAll(locks, limits, asynqmw.ShareOptions{})
	})
	fmt.Println("more than 3:", most > 3)
	// Output: more than 3: false
}

// Reports read the books at the same time, but never while a task of Exclusive with the same key
// runs.
func ExampleShared() {
	most := exampleServer(6, func(locks *lockcore.Locker) asynq.MiddlewareFunc {
		return asynqmw.Shared(locks, asynqmw.ByType(), asynqmw.ShareOptions{})
	})
	fmt.Println("reports ran:", most > 0)
	// Output: reports ran: true
}

// Tasks of a type begin at most 20 times in any second, in all workers together.
func ExampleThrottled() {
	begin := time.Now()
	exampleServer(30, func(locks *lockcore.Locker) asynq.MiddlewareFunc {
		return asynqmw.Throttled(locks, asynqmw.ByType(), lockcore.Rate{N: 19, Burst: 2}, asynqmw.ThrottleOptions{})
	})
	fmt.Println("in less than a second:", time.Since(begin) < time.Second)
	// Output: in less than a second: false
}

// Each queue has its own rate.
func ExampleThrottledFunc() {
	rates := map[string]int{"default": 100, "bulk": 5}
	var rate asynqmw.RateFunc = func(ctx context.Context, _ *asynq.Task) (lockcore.Rate, error) {
		queue, _ := asynq.GetQueueName(ctx)
		return lockcore.Rate{N: rates[queue]}, nil // 0 is an error: the task does not run
	}
	most := exampleServer(6, func(locks *lockcore.Locker) asynq.MiddlewareFunc {
		return asynqmw.ThrottledFunc(locks, asynqmw.ByQueue(), rate, asynqmw.ThrottleOptions{})
	})
	fmt.Println("tasks ran:", most > 0)
	// Output: tasks ran: true
}
