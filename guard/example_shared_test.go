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

// Readers run beside each other, and never beside the writer.
func ExampleShared() {
	locks, err := lockcore.NewMemory(lockcore.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	prices := map[string]int{"apple": 1}
	read := func(ctx context.Context) error {
		fmt.Println("apple:", prices["apple"])
		return guard.Exclusive(ctx, locks, "prices", lockcore.Terms{}, func(context.Context) error { return nil })
	}
	err = guard.Shared(ctx, locks, "prices", lockcore.Terms{}, read)
	fmt.Println("a reader cannot become the writer:", errors.Is(err, lockcore.ErrUpgrade))
	err = guard.Exclusive(ctx, locks, "prices", lockcore.Terms{}, func(context.Context) error {
		prices["apple"] = 2
		return nil
	})
	fmt.Println("written:", err)
	// Output:
	// apple: 1
	// a reader cannot become the writer: true
	// written: <nil>
}

// At most three calls of a partner run at a time, in all processes.
func ExampleLimited() {
	locks, err := lockcore.NewMemory(lockcore.Options{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	var mu sync.Mutex
	running, most := 0, 0
	count := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		running += n
		most = max(most, running)
	}
	var calls sync.WaitGroup
	for range 10 {
		calls.Go(func() {
			err := guard.Limited(ctx, locks, "partner:acme", 3, lockcore.Terms{Wait: lockcore.Forever}, func(context.Context) error {
				count(1)
				defer count(-1)
				time.Sleep(time.Millisecond)
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	calls.Wait()
	fmt.Println("at most 3 at a time:", most <= 3)
	// Output:
	// at most 3 at a time: true
}
