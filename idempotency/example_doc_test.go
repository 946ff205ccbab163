package idempotency_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The program in the documentation of the package.
func Example() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // several processes: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	charge := func(context.Context) (string, error) { return "receipt 17", nil }
	if _, err := guard.OnceValue(ctx, locks, "charge:7", guard.OnceOptions{}, charge); err != nil {
		panic(err)
	}
	status, err := idempotency.Lookup(ctx, locks, "charge:7")
	fmt.Println(status.State, status.Attempt, string(status.Content.Data), err)
	// Output: done 1 "receipt 17" <nil>
}
