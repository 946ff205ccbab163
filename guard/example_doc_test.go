package guard_test

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The program in the documentation of the package.
func Example() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	pay := func(context.Context) error { fmt.Println("pay"); return nil }
	err = guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, pay)
	fmt.Println("exclusive:", err)
	for range 2 {
		outcome, err := guard.Once(ctx, locks, "charge:7", guard.OnceOptions{}, pay)
		fmt.Println("once:", outcome, err)
	}
	// Output:
	// pay
	// exclusive: <nil>
	// pay
	// once: ran <nil>
	// once: replayed <nil>
}
