package asynqmw_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/middleware/asynqmw"
)

// Two processes enqueue the same tick. Both get nil, and one task is enqueued.
func ExampleEnqueueTick() {
	rdb, stop := exampleRedis()
	defer stop()
	client, inspector := asynq.NewClientFromRedisClient(rdb), asynq.NewInspectorFromRedisClient(rdb)

	six := time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC) // the time in the schedule, not time.Now()
	for range 2 {
		fmt.Println(asynqmw.EnqueueTick(context.Background(), client, "report", six, asynq.NewTask("report", nil)))
	}

	tasks, err := inspector.ListPendingTasks("default")
	if err != nil {
		log.Fatal(err)
	}
	for _, t := range tasks {
		fmt.Println(t.Type, t.ID)
	}
	// Output:
	// <nil>
	// <nil>
	// report report@1767247200
}

// The ID names the tick for asynq's Inspector. It does not depend on the zone.
func ExampleTickID() {
	six := time.Date(2026, 1, 1, 6, 0, 0, 0, time.UTC)
	fmt.Println(asynqmw.TickID("report", six))
	fmt.Println(asynqmw.TickID("report", six.In(time.FixedZone("Tokyo", 9*3600))))
	// Output:
	// report@1767247200
	// report@1767247200
}

// A scheduler that may run in any number of processes.
func ExampleTicks() {
	rdb, stop := exampleRedis()
	defer stop()
	ticks, err := asynqmw.NewTicks(asynq.NewClientFromRedisClient(rdb), asynqmw.TickOptions{
		OnTick: func(name string, at time.Time, err error) {
			if err != nil {
				log.Print(name, at, err)
			}
		},
	}, asynqmw.Periodic{Name: "report", Spec: "0 6 * * *", Task: asynq.NewTask("report", nil)})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond) // in a program: signal.NotifyContext
	defer cancel()
	ticks.Run(ctx)
	fmt.Println("stopped")
	// Output: stopped
}

// The mistake: @every counts from the start of the process, so no two processes have the same
// ticks.
func ExampleNewTicks_every_incorrect() {
	rdb, stop := exampleRedis()
	defer stop()
	_, err := asynqmw.NewTicks(asynq.NewClientFromRedisClient(rdb), asynqmw.TickOptions{}, asynqmw.Periodic{
		Name: "report", Spec: "@every 5m", Task: asynq.NewTask("report", nil),
	})
	fmt.Println(err)
	// Output: asynqmw: NewTicks: task 0, "report": spec "@every 5m" counts from the start of the process, so no two processes have the same ticks: write */5 * * * * instead of @every 5m
}
