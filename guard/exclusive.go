package guard

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Exclusive runs fn alone: while it runs, no other Exclusive of the same key runs anywhere on the same Redis and prefix.
// It waits up to t.Wait (2 s by default) for its turn. fn gets a ctx that is canceled before the lease can end; [context.Cause] says why.
//
// A call inside fn, with fn's ctx, on the same key is nested: it costs no round trip and runs at once, unless another
// nested call with the same ctx runs. Then it waits for that call, up to t.Wait. So nested calls exclude each other,
// but not the code of fn itself. A call inside a nested call must use the ctx of that call, else it waits for its own
// caller and the error has BusyError.Nested. A call inside fn that does not use fn's ctx waits for fn, and the error
// has BusyError.Local.
//
// It returns:
//   - an error that satisfies errors.Is(err, lockcore.ErrNotRun): fn did not run, unless fn itself returned that error;
//   - fn's own error, unchanged, unless the lease had ended before fn returned and the error is context.Canceled or
//     context.DeadlineExceeded: then one error that wraps both the cause and fn's error;
//   - lockcore.ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp: fn returned nil, but the lease had ended before;
//   - nil: fn returned nil and the key was ours from its first line to its last, or to its [Ticket].
//
// The key is given back when fn has returned, never before, even if it panics; the panic passes on. A release that
// fails is counted, not returned: the key is free at the lease's end.
func Exclusive(ctx context.Context, locks *lockcore.Locker, key string, t lockcore.Terms, fn func(context.Context) error) error {
	if t.Limit != 0 || t.Weight != 0 {
		return refuseTerms("Exclusive", "Limit and Weight must be 0; use Shared or Limited", t)
	}
	return hold(ctx, "Exclusive", locks, key, t, fn)
}

// hold acquires the key, runs fn, and releases. name is that of the function of this package.
func hold(ctx context.Context, name string, locks *lockcore.Locker, key string, t lockcore.Terms, fn func(context.Context) error) (err error) {
	if locks == nil || fn == nil {
		return errtext.Prefix("guard: "+name+": locks and fn must not be nil", lockcore.ErrNotRun)
	}
	lease, err := acquire(ctx, locks, key, t)
	if err != nil {
		return err
	}
	// A panic leaves err as it is; fn's return sets it.
	err = errNoReturn
	defer func() { //planted:exclusive-release
		lease.Failed(err)
		lost := lease.Release(ctx)
		if lease.HandedOver() && err == nil {
			lost = nil
		}
		err = because(lost, err)
	}()
	return fn(lease.Context()) //planted:exclusive-run
}

// errNoReturn is the error that telemetry gets for a handler that panicked or called runtime.Goexit.
var errNoReturn error = noReturnError{}

type noReturnError struct{}

func (noReturnError) Error() string { return "guard: the handler panicked or called runtime.Goexit" }

// ErrorType is the class for telemetry: the value of error.type.
func (noReturnError) ErrorType() string { return "panic" }
