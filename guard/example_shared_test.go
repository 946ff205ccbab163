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

// Two readers run at the same time. A writer runs alone. A reader cannot become the writer.
func ExampleShared() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	defer locks.Close(ctx)

	prices := map[string]int{"apple": 1}
	var readers, both sync.WaitGroup
	both.Add(2)
	for range 2 {
		readers.Go(func() {
			err := guard.Shared(ctx, locks, "prices", lockcore.Terms{}, func(context.Context) error {
				both.Done()
				both.Wait() // for the other reader
				fmt.Println("apple:", prices["apple"])
				return nil
			})
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	readers.Wait()

	write := func(context.Context) error { prices["apple"] = 2; return nil }
	err = guard.Exclusive(ctx, locks, "prices", lockcore.Terms{}, write)
	fmt.Println("write:", err)

	err = guard.Shared(ctx, locks, "prices", lockcore.Terms{}, func(ctx context.Context) error {
		return guard.Exclusive(ctx, locks, "prices", lockcore.Terms{}, write)
	})
	fmt.Println("write inside a read:", errors.Is(err, lockcore.ErrUpgrade))
	// Output:
	// apple: 1
	// apple: 1
	// write: <nil>
	// write inside a read: true
}

// At most three calls to a partner run at the same time, in all processes.
func ExampleLimited() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
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
			err := guard.Limited(ctx, locks, "partner:acme", lockcore.Limit{N: 3}, lockcore.Terms{Wait: lockcore.Forever}, func(context.Context) error {
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

// At most three calls of a tenant run at the same time, and at most four of all tenants.
func ExampleLimitedAll() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
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
	for i := range 12 {
		limits := []guard.KeyLimit{
			{Key: fmt.Sprint("tenant:", i%2), Limit: lockcore.Limit{N: 3}},
			{Key: "tenants", Limit: lockcore.Limit{N: 4}},
		}
		calls.Go(func() {
			err := guard.LimitedAll(ctx, locks, limits, lockcore.Terms{Wait: time.Minute}, func(context.Context) error {
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
	fmt.Println("at most 4 at a time:", most <= 4)
	// Output:
	// at most 4 at a time: true
}
