package lockcore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Two calls with the ctx of one lease: the second waits until the first is released.
func ExampleLocker_Acquire_twice() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	terms := lockcore.Terms{Wait: lockcore.NoWait}
	outer, err := locks.Acquire(context.Background(), "account:42", terms)
	if err != nil {
		panic(err)
	}
	ctx := outer.Context()
	first, err := locks.Acquire(ctx, "account:42", terms)
	fmt.Println("first:", err)
	_, err = locks.Acquire(ctx, "account:42", terms)
	var busy *lockcore.BusyError
	fmt.Println("second, while the first is open: busy with a nested call:", errors.As(err, &busy) && busy.Nested)
	inside, err := locks.Acquire(first.Context(), "account:42", terms)
	fmt.Println("inside the first:", err)
	_ = inside.Release(ctx)
	_ = first.Release(ctx)
	second, err := locks.Acquire(ctx, "account:42", terms)
	fmt.Println("second, after the first:", err)
	_ = second.Release(ctx)
	_ = outer.Release(ctx)
	// Output:
	// first: <nil>
	// second, while the first is open: busy with a nested call: true
	// inside the first: <nil>
	// second, after the first: <nil>
}
