package lockcore_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// A hold over several requests: the first request transfers it, and the second one adopts it.
func ExampleLease_Ticket() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several processes: New
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)

	first, err := locks.Acquire(ctx, "draft:7", lockcore.Terms{})
	if err != nil {
		panic(err)
	}
	ticket, err := first.Ticket(ctx, 10*time.Minute) // a secret: keep it in an encrypted cookie, for example
	if err != nil {
		_ = first.Release(ctx)
		panic(err)
	}

	second, err := locks.Adopt(ctx, ticket, lockcore.Terms{})
	if err != nil {
		panic(err)
	}
	fmt.Println("the token grows:", second.Token() > first.Token())
	_, err = locks.Adopt(ctx, ticket, lockcore.Terms{})
	fmt.Println("a ticket works once:", errors.Is(err, lockcore.ErrLost))
	fmt.Println("released:", second.Release(ctx) == nil)
	// Output:
	// the token grows: true
	// a ticket works once: true
	// released: true
}
