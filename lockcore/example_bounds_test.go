package lockcore_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// MaxHold bounds a hold whose handler hangs. Release then returns the reason.
func ExampleTerms_maxHold() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	lease, err := locks.Acquire(ctx, "report", lockcore.Terms{MaxHold: 20 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	<-lease.Context().Done() // the handler must return now
	fmt.Println(context.Cause(lease.Context()))
	fmt.Println(lease.Release(ctx))
	// Output:
	// lockcore: max hold reached
	// lockcore: max hold reached
}

// With Stall a handler must call Beat. A handler that makes no progress loses its hold.
func ExampleBeat() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	lease, err := locks.Acquire(context.Background(), "report", lockcore.Terms{Stall: 400 * time.Millisecond})
	if err != nil {
		panic(err)
	}
	ctx := lease.Context()
	for range 3 {
		time.Sleep(5 * time.Millisecond) // one step of the work
		lockcore.Beat(ctx)
	}
	fmt.Println("with Beat:", context.Cause(ctx))
	<-ctx.Done() // the work hangs
	fmt.Println("without Beat:", context.Cause(ctx))
	_ = lease.Release(ctx)
	// Output:
	// with Beat: <nil>
	// without Beat: lockcore: handler stalled
}
