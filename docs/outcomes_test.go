package docs_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// outcome says what a call of OnceValue did.
func outcome(r guard.Result[string], err error) string {
	var busy *lockcore.BusyError
	switch {
	case errors.As(err, &busy):
		return "busy, held by " + busy.Holder.Task // come back later
	case errors.Is(err, lockcore.ErrNotRun):
		return "not run: " + err.Error()
	case err != nil: // of the function, of a recorded failure, or of a lease that ended
		return r.Outcome.String() + ", failed: " + err.Error()
	default: // Ran, TookOver, Replayed or Transferred
		return r.Outcome.String() + ": " + r.Value
	}
}

func Example_outcome() {
	ctx := lockcore.WithTask(context.Background(), "task 1")
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	noWait := guard.OnceOptions{Terms: lockcore.Terms{Wait: lockcore.NoWait}}
	charge := func(context.Context) (string, error) { return "receipt 1001", nil }
	call := func(key string, fn func(context.Context) (string, error)) {
		fmt.Println(outcome(guard.OnceValue(ctx, locks, key, noWait, fn)))
	}
	call("charge:7", func(context.Context) (string, error) {
		call("charge:7", charge)
		return "", guard.Unknown(errors.New("no reply from the provider"))
	})
	call("charge:7", charge)
	call("charge:7", charge)
	call("charge:8", func(context.Context) (string, error) { return "", errors.New("no such account") })
	call("", charge)
	// Output:
	// busy, held by task 1
	// ran, failed: no reply from the provider
	// took over: receipt 1001
	// replayed: receipt 1001
	// ran, failed: no such account
	// not run: lockcore: not run: bad key: empty
}
