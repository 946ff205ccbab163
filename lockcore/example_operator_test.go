package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Inspect shows the holder of a key while it runs, and its record when it is done.
func ExampleLocker_Inspect() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	ctx := lockcore.WithTask(context.Background(), "asynq:7f3a")
	lease, _, err := locks.Claim(ctx, "charge:7", lockcore.Claim{})
	if err != nil {
		panic(err)
	}

	h, err := locks.Inspect(ctx, event.KindOnce, "charge:7")
	fmt.Println(h.State, "by", h.Holder.Task, "in attempt", h.Attempt, err)

	if err := lease.Complete(ctx, []byte("receipt 17"), time.Hour); err != nil {
		panic(err)
	}
	h, err = locks.Inspect(ctx, event.KindOnce, "charge:7")
	fmt.Println(h.State, "with", string(h.Record.Data), err)
	// Output:
	// held by asynq:7f3a in attempt 1 <nil>
	// done with receipt 17 <nil>
}

// The order at the end of a program: stop the workers, close the Locker, close the Redis client.
func ExampleLocker_Close() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with Redis: New(rdb, ...)
	if err != nil {
		panic(err)
	}
	lease, err := locks.Acquire(ctx, "report", lockcore.Terms{})
	if err != nil {
		panic(err)
	}
	go func() { // a worker that finishes its last task
		fmt.Println("the handler returns")
		_ = lease.Release(ctx)
	}()

	fmt.Println("closed:", locks.Close(ctx)) // waits for the handler
	// With Redis: rdb.Close()

	_, err = locks.Acquire(ctx, "report", lockcore.Terms{})
	fmt.Println("later calls are refused:", errors.Is(err, lockcore.ErrClosed))
	// Output:
	// the handler returns
	// closed: <nil>
	// later calls are refused: true
}

// When its ctx ends, Close stops waiting for the handlers. It cancels them, and frees no key under
// them: the lease expires.
func ExampleLocker_Close_handlerHangs() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	lease, err := locks.Acquire(context.Background(), "report", lockcore.Terms{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	fmt.Println(locks.Close(ctx))
	fmt.Println(context.Cause(lease.Context()))
	// Output:
	// lockcore: closed, leases still held: 1: context deadline exceeded
	// lockcore: lease given up by Close
}

// Here shows what this process holds and waits for, without a command.
func ExampleLocker_Here() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)
	lease, err := locks.Acquire(ctx, "account:42", lockcore.Terms{})
	if err != nil {
		panic(err)
	}

	for _, h := range locks.Here() {
		fmt.Println(h.Kind, h.Key, "holds:", h.Holds, "calls waiting:", h.Waiting)
	}
	_ = lease.Release(ctx)
	// Output:
	// exclusive account:42 holds: 1 calls waiting: 0
}
