package slogobs_test

import (
	"context"
	"log/slog"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/tracing/slogobs"
)

// The program in the documentation of the package. It writes to standard error.
func Example() {
	ctx := context.Background()
	observer := slogobs.New(slog.Default(), slogobs.Options{})
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: observer})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	terms := lockcore.Terms{Name: "account", Wait: lockcore.NoWait}
	_ = guard.Exclusive(ctx, locks, "account:42", terms, func(context.Context) error {
		return guard.Exclusive(ctx, locks, "account:42", terms, func(context.Context) error { return nil })
	})
	// Output:
}
