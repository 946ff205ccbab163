package guard_test

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A handler begins the work, and another process ends it. The key stays held meanwhile.
func ExampleTicket() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several processes: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	jobs := make(chan string, 1)

	outcome, err := guard.Once(ctx, locks, "order:7", guard.OnceOptions{}, func(ctx context.Context) error {
		ticket, err := guard.Ticket(ctx, "order:7", time.Hour)
		if err == nil {
			jobs <- ticket // a call that sends it to a queue needs guard.Detach(ctx)
		}
		return err
	})
	fmt.Println(outcome, err)

	outcome, err = guard.Once(guard.WithTicket(ctx, <-jobs), locks, "order:7", guard.OnceOptions{}, func(context.Context) error { return nil })
	fmt.Println(outcome, err)

	outcome, err = guard.Once(ctx, locks, "order:7", guard.OnceOptions{}, func(context.Context) error { return nil })
	fmt.Println(outcome, err)
	// Output:
	// transferred <nil>
	// ran <nil>
	// replayed <nil>
}
