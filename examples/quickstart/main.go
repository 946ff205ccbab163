// Command quickstart is the first program of the README.
package main

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

func main() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // with Redis: lockcore.New(redisClient, lockcore.Options{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)

	// Alone: of all calls with the key account:42, one runs at a time.
	err = guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, func(context.Context) error {
		fmt.Println("transferring")
		return nil
	})
	fmt.Println("transfer:", err)

	// Once: the second call returns the recorded result of the first.
	charge := func(context.Context) (string, error) { return "receipt 1001", nil }
	for range 2 {
		res, err := guard.OnceValue(ctx, locks, "charge:7", guard.OnceOptions{}, charge)
		fmt.Println("charge:", res.Outcome, res.Value, err)
	}
}
