package lockcore_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// outcomes is an Observer that prints how each call ends, and ignores all other events.
type outcomes struct{}

func (outcomes) Start(ctx context.Context, a event.Acquisition) context.Context {
	fmt.Println("start:", a.Kind, a.Name)
	return ctx
}

func (outcomes) Event(_ context.Context, e event.Event) {
	switch e := e.(type) {
	case event.Granted:
		fmt.Println("granted, another holder was first:", e.Contended)
	case event.Refused:
		fmt.Println("refused, busy:", errors.Is(e.Err, lockcore.ErrBusy))
	case event.Released:
		fmt.Println("released, lost:", e.Lost)
	}
}

func (outcomes) Traceparent(context.Context) string { return "" }

// Package tracing has an Observer for OpenTelemetry, and package slogobs one for log records.
func ExampleObserver() {
	ctx := context.Background()
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: outcomes{}})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	terms := lockcore.Terms{Name: "account", Wait: lockcore.NoWait}
	lease, err := locks.Acquire(ctx, "account:42", terms)
	if err != nil {
		panic(err)
	}
	_, _ = locks.Acquire(ctx, "account:42", terms)
	_ = lease.Release(ctx)
	// Output:
	// start: exclusive account
	// granted, another holder was first: false
	// start: exclusive account
	// refused, busy: true
	// released, lost: <nil>
}
