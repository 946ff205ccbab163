package guard_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

func ExampleExclusive() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with several instances: lockcore.New
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	balance := 100 // without the key, the goroutines would race for it
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			err := guard.Exclusive(context.Background(), locks, "account:42", lockcore.Terms{}, func(context.Context) error {
				balance -= 10
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	wg.Wait()
	fmt.Println("balance:", balance)
	// Output: balance: 0
}

// A call with NoWait returns a BusyError at once.
func ExampleExclusive_busy() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	_ = guard.Exclusive(ctx, locks, "report", lockcore.Terms{}, func(context.Context) error {
		// not nested, because it does not use the ctx of the handler
		err := guard.Exclusive(ctx, locks, "report", lockcore.Terms{Wait: lockcore.NoWait}, func(context.Context) error { return nil })
		var busy *lockcore.BusyError
		fmt.Println(errors.As(err, &busy), errors.Is(err, lockcore.ErrNotRun), busy.RetryAfter())
		return nil
	})
	// Output: true true 1s
}

// Mistake: a goroutine uses the handler's ctx after the handler has returned. It no longer holds
// the key. It needs the ctx of guard.Detach, and must acquire the key itself.
func ExampleExclusive_leakedContext_incorrect() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	background := make(chan context.Context, 1)
	_ = guard.Exclusive(context.Background(), locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
		background <- ctx // wrong: it outlives the handler
		return nil
	})
	ctx := <-background
	_, held := guard.Token(ctx, "account:42")
	fmt.Println("held:", held, "-", context.Cause(ctx))
	// Output: held: false - lockcore: lease released
}

func ExampleOnce() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	send := func(context.Context) error { fmt.Println("sending the mail"); return nil }
	for range 3 {
		outcome, err := guard.Once(context.Background(), locks, "mail:welcome:7", guard.OnceOptions{Keep: 7 * 24 * time.Hour}, send)
		fmt.Println(outcome, err)
	}
	// Output:
	// sending the mail
	// ran <nil>
	// replayed <nil>
	// replayed <nil>
}

// A failed run is not recorded, so the next call runs. A final error is recorded and replayed.
func ExampleFinal() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	answers := []error{errors.New("timeout"), guard.Final(errors.New("card expired")), nil}
	for n := range 3 {
		outcome, err := guard.Once(context.Background(), locks, "charge:8", guard.OnceOptions{}, func(context.Context) error {
			return answers[n]
		})
		fmt.Println(outcome, "-", err)
	}
	// Output:
	// ran - timeout
	// ran - card expired
	// replayed - card expired
}

// A handler gets its hold without repeating the key.
func ExampleCurrent() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	_ = guard.Exclusive(context.Background(), locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
		h, ok := guard.Current(ctx)
		fmt.Println(h.Key, ok, h.Token > 0, h.Attempt, h.TookOver)
		return nil
	})
	// Output:
	// account:42 true true 1 false
}

// The resource compares fencing tokens, and refuses a write of an earlier holder.
func ExampleToken() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	seen := int64(0) // in the resource: the greatest token so far
	write := func(token int64) bool { ok := token >= seen; seen = max(seen, token); return ok }
	var old int64
	for range 2 {
		_ = guard.Exclusive(context.Background(), locks, "file:1", lockcore.Terms{}, func(ctx context.Context) error {
			token, _ := guard.Token(ctx, "file:1")
			fmt.Println("accepted:", write(token))
			if old == 0 {
				old = token
			}
			return nil
		})
	}
	fmt.Println("a paused writer wakes up, accepted:", write(old))
	// Output:
	// accepted: true
	// accepted: true
	// a paused writer wakes up, accepted: false
}

// A transfer holds both accounts. Two opposite transfers do not deadlock, and each key has its own
// token.
func ExampleExclusiveAll() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	balance := map[string]int{"account:1": 100, "account:2": 100}
	transfer := func(from, to string, amount int) {
		keys := []string{from, to}
		err := guard.ExclusiveAll(context.Background(), locks, keys, lockcore.Terms{}, func(ctx context.Context) error {
			for _, key := range keys {
				if token, ok := guard.Token(ctx, key); !ok || token == 0 {
					fmt.Println("no token for", key)
				}
			}
			balance[from] -= amount
			balance[to] += amount
			return nil
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { transfer("account:1", "account:2", 5) })
		wg.Go(func() { transfer("account:2", "account:1", 3) })
	}
	wg.Wait()
	fmt.Println(balance)
	// Output: map[account:1:80 account:2:120]
}
