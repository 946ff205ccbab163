package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A worker panics during a payment that must not run twice. An operator looks up the key, finds out
// that the bank has charged nothing, and clears the key.
func ExampleLookup() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	pay := func(worker string, charge func(context.Context) (string, error)) {
		defer func() { _ = recover() }()
		ctx := lockcore.WithTask(ctx, worker)
		r, err := guard.OnceValue(ctx, locks, "payment:7", guard.OnceOptions{Mode: guard.AtMostOnce}, charge)
		fmt.Printf("%s: %v %q, abandoned: %v\n", worker, r.Outcome, r.Value, errors.Is(err, lockcore.ErrAbandoned))
	}
	pay("worker 1", func(context.Context) (string, error) { panic("out of memory") })
	pay("worker 2", func(context.Context) (string, error) { return "receipt 2", nil })

	e, err := idempotency.Lookup(ctx, locks, "payment:7")
	fmt.Printf("%s by %s, %v ago, run %d, %v\n", e.State, e.Holder.Task, e.HeldFor.Round(time.Minute), e.Attempt, err)

	fmt.Println("clear:", idempotency.Clear(ctx, locks, "payment:7", e)) // the bank has charged nothing
	pay("worker 3", func(context.Context) (string, error) { return "receipt 3", nil })

	e, err = idempotency.Lookup(ctx, locks, "payment:7")
	var receipt string
	if err == nil {
		err = e.Content.Value(idempotency.JSON(), &receipt)
	}
	fmt.Printf("%s by %s, kept for %v: %q, %v\n", e.State, e.Holder.Task, e.KeepLeft.Round(time.Hour), receipt, err)
	// Output:
	// worker 2: not run "", abandoned: true
	// abandoned by worker 1, 0s ago, run 1, <nil>
	// clear: <nil>
	// worker 3: ran "receipt 3", abandoned: false
	// done by worker 3, kept for 24h0m0s: "receipt 3", <nil>
}

// A record contains a result, the text of a final error, or only that the key is done.
func ExampleContent() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	once := func(key string, o guard.OnceOptions, fn func(context.Context) (string, error)) {
		_, _ = guard.OnceValue(ctx, locks, key, o, fn)
		e, err := idempotency.Lookup(ctx, locks, key)
		fmt.Printf("%s: %v %q %v\n", key, e.Content.Ending, e.Content.Failure(), err)
	}
	once("small", guard.OnceOptions{}, func(context.Context) (string, error) { return "receipt", nil })
	once("large", guard.OnceOptions{MaxResult: 4}, func(context.Context) (string, error) { return "receipt", nil })
	once("final", guard.OnceOptions{}, func(context.Context) (string, error) { return "", guard.Final(errors.New("card expired")) })
	// Output:
	// small: done "" <nil>
	// large: not kept "" <nil>
	// final: failed "card expired" <nil>
}
