// Command quickstart is the first program of the README.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

func main() {
	ctx := context.Background()
	// Keys of this process. With Redis: lockcore.New(rdb, lockcore.Options{}).
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close(ctx)

	// Alone: of all calls with the key account:42, one runs at a time. A call that
	// waits longer than Terms.Wait (2 s) returns a *lockcore.BusyError.
	transfer := func(context.Context) error {
		fmt.Println("transferring")
		return nil
	}
	err = guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, transfer)
	fmt.Println("transfer:", err)

	// Once: the second call returns the recorded result of the first one.
	charge := func(context.Context) (string, error) { return "receipt 1001", nil }
	var o guard.OnceOptions // the defaults
	for range 2 {
		r, err := guard.OnceValue(ctx, locks, "charge:7", o, charge)
		fmt.Println("charge:", r.Outcome, r.Value, err)
	}
}
