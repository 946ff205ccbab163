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
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
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
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
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
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
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

// One payment at a time for each account, and each payment once. Exclusive is outside, because a
// payment that waits for its account has not begun.
func ExampleOnce_insideExclusive() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	pay := func(account, payment string) {
		err := guard.Exclusive(ctx, locks, "account:"+account, lockcore.Terms{}, func(ctx context.Context) error {
			outcome, err := guard.Once(ctx, locks, "payment:"+payment, guard.OnceOptions{Mode: guard.AtMostOnce}, func(context.Context) error {
				fmt.Println("charge account", account)
				return nil
			})
			fmt.Println(outcome)
			return err
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	pay("42", "7")
	pay("42", "7")
	// Output:
	// charge account 42
	// ran
	// replayed
}

// Mistake: Once outside of Exclusive, with AtMostOnce. The account is busy, so the charge does not
// begin, and that is recorded as the outcome of the payment. Nest Exclusive outside.
func ExampleOnce_outsideExclusive_incorrect() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	pay := func() (guard.Outcome, error) {
		return guard.Once(ctx, locks, "payment:7", guard.OnceOptions{Mode: guard.AtMostOnce}, func(ctx context.Context) error {
			return guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{Wait: lockcore.NoWait}, func(context.Context) error { return nil })
		})
	}
	busy, err := locks.Acquire(ctx, "account:42", lockcore.Terms{}) // for another payment
	if err != nil {
		panic(err)
	}
	_, err = pay()
	fmt.Println("busy:", errors.Is(err, lockcore.ErrBusy))
	_ = busy.Release(ctx)
	outcome, err := pay() // the account is free
	fmt.Println(outcome, "the refusal:", err != nil)
	// Output:
	// busy: true
	// replayed the refusal: true
}
