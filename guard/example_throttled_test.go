package guard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Two calls a minute may begin. A call that does not wait learns when it is its turn.
func ExampleThrottled() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	rate := lockcore.Rate{N: 1, Per: time.Minute, Burst: 2}
	for range 3 {
		err := guard.Throttled(ctx, locks, "partner:acme", rate, lockcore.ThrottleOptions{Wait: lockcore.NoWait}, func(context.Context) error {
			fmt.Println("called")
			return nil
		})
		if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
			fmt.Println("try again after", busy.RetryAfter())
		}
	}
	// Output:
	// called
	// called
	// try again after 1m0s
}

// A partner refuses a call for 3 s. No call of its key begins meanwhile.
func ExamplePaused() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	rate, noWait := lockcore.Rate{N: 100}, lockcore.ThrottleOptions{Wait: lockcore.NoWait}
	err = guard.Throttled(ctx, locks, "partner:acme", rate, noWait, func(context.Context) error {
		return guard.Paused(errors.New("429 Too Many Requests"), 3*time.Second)
	})
	fmt.Println(err)
	err = guard.Throttled(ctx, locks, "partner:acme", rate, noWait, func(context.Context) error { return nil })
	busy, _ := errors.AsType[*lockcore.BusyError](err)
	fmt.Println(busy.PauseReason, busy.RetryAfter())
	// Output:
	// 429 Too Many Requests
	// refused by the resource (guard.Paused) 3s
}

// The tokens of an LLM's prompt are the cost of a call, and those of the answer are taken
// afterwards.
func ExampleSpend() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	perMinute := lockcore.Rate{N: 10_000, Per: time.Minute, Burst: 10_000}
	prompt := perMinute
	prompt.Cost = 1200
	err = guard.Throttled(ctx, locks, "model", prompt, lockcore.ThrottleOptions{}, func(ctx context.Context) error {
		answer := perMinute
		answer.Cost = 800
		return guard.Spend(ctx, locks, "model", answer)
	})
	fmt.Println(err)

	now, err := locks.Throttle(ctx, "model", perMinute, lockcore.ThrottleOptions{})
	fmt.Println(now.Left < 8100, err)
	// Output:
	// <nil>
	// true <nil>
}
