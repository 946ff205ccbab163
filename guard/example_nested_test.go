package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Goroutines that use the handler's ctx exclude each other on the handler's key, without a command.
// They do not exclude the handler's own code, so the handler waits for them.
func ExampleExclusive_fanOut() {
	locks, err := lockcore.NewMemory(lockcore.Options{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	balance := 100
	err = guard.Exclusive(context.Background(), locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
		var fees sync.WaitGroup
		for range 10 {
			fees.Go(func() {
				err := guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, func(context.Context) error {
					balance -= 10
					return nil
				})
				if err != nil {
					fmt.Println(err)
				}
			})
		}
		fees.Wait()
		return nil
	})
	fmt.Println("balance:", balance, err)
	// Output: balance: 0 <nil>
}

// Mistake: the code inside a nested call uses the ctx of the handler around it. It waits for its
// own caller until Wait is over.
func ExampleExclusive_capturedContext_incorrect() {
	locks, err := lockcore.NewMemory(lockcore.Options{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	terms := lockcore.Terms{Wait: lockcore.NoWait} // with the default the wrong call waits for 2 s
	nothing := func(context.Context) error { return nil }
	_ = guard.Exclusive(context.Background(), locks, "account:42", terms, func(outer context.Context) error {
		return guard.Exclusive(outer, locks, "account:42", terms, func(inner context.Context) error {
			err := guard.Exclusive(outer, locks, "account:42", terms, nothing) // wrong
			var busy *lockcore.BusyError
			fmt.Println("outer ctx: busy with a nested call:", errors.As(err, &busy) && busy.Nested)
			fmt.Println("inner ctx:", guard.Exclusive(inner, locks, "account:42", terms, nothing))
			return nil
		})
	})
	// Output:
	// outer ctx: busy with a nested call: true
	// inner ctx: <nil>
}

// Mistake: a call inside the handler does not use the handler's ctx. It waits for its own caller
// until Wait is over. With Forever it does not return.
func ExampleExclusive_forgottenContext_incorrect() {
	locks, err := lockcore.NewMemory(lockcore.Options{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	ctx, terms := context.Background(), lockcore.Terms{Wait: lockcore.NoWait}
	nothing := func(context.Context) error { return nil }
	_ = guard.Exclusive(ctx, locks, "account:42", terms, func(inner context.Context) error {
		err := guard.Exclusive(ctx, locks, "account:42", terms, nothing) // wrong
		var busy *lockcore.BusyError
		fmt.Println("another ctx: busy with a call of this process:", errors.As(err, &busy) && busy.Local)
		fmt.Println("the handler's ctx:", guard.Exclusive(inner, locks, "account:42", terms, nothing))
		return nil
	})
	// Output:
	// another ctx: busy with a call of this process: true
	// the handler's ctx: <nil>
}
