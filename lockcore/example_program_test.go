package lockcore_test

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/lockcore"
)

func Example() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // this process only; with Redis: New
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)
	lease, err := locks.Acquire(ctx, "account:42", lockcore.Terms{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { fmt.Println("released:", lease.Release(ctx)) }()
	// Pass lease.Context() and lease.Token() to the work.
	fmt.Println("held:", lease.Context().Err() == nil)
	// Output:
	// held: true
	// released: <nil>
}
