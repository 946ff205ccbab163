package guard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// MaxHold bounds the time of a handler. It cancels the handler's ctx, and the key is released when
// the handler returns.
func ExampleExclusive_maxHold() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	terms := lockcore.Terms{MaxHold: 50 * time.Millisecond}
	err = guard.Exclusive(ctx, locks, "report", terms, func(ctx context.Context) error {
		<-ctx.Done() // a slow query that obeys ctx
		return ctx.Err()
	})
	fmt.Println(errors.Is(err, lockcore.ErrMaxHold), "-", err)
	err = guard.Exclusive(ctx, locks, "report", terms, func(context.Context) error { return nil })
	fmt.Println("next call:", err)
	// Output:
	// true - lockcore: max hold reached: context canceled
	// next call: <nil>
}

// Stall ends the hold of a handler that does not call Beat for that time. It finds a handler that
// hangs sooner than MaxHold does.
func ExampleBeat() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	terms := lockcore.Terms{Stall: 200 * time.Millisecond}
	err = guard.Exclusive(ctx, locks, "import", terms, func(ctx context.Context) error {
		for row := range 3 {
			fmt.Println("row", row)
			guard.Beat(ctx) // progress: the time of Stall begins again
		}
		<-ctx.Done() // the next row hangs
		return context.Cause(ctx)
	})
	fmt.Println(err)
	// Output:
	// row 0
	// row 1
	// row 2
	// lockcore: handler stalled
}
