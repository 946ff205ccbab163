package guard

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Exclusive runs fn while it holds key alone. No other Exclusive, [Shared] or [Limited] of the key
// runs meanwhile, in any process with the same Redis and prefix. It waits up to t.Wait (2 s by
// default) for the key. fn gets a ctx that is canceled before the lease can end. [context.Cause]
// then returns the reason.
//
// A call of the same key inside fn, with fn's ctx, is nested. It sends no command and runs at once.
// If another nested call with the same ctx runs, it waits for that call, up to t.Wait. So nested
// calls exclude each other, but not the code of fn itself. Two mistakes make a call wait for its
// own caller until t.Wait is over:
//
//   - A call inside a nested call uses the ctx of fn instead of the ctx of the nested call. The
//     error has BusyError.Nested.
//   - A call inside fn does not use fn's ctx. The error has BusyError.Local.
//
// Exclusive returns:
//
//   - an error that satisfies errors.Is(err, lockcore.ErrNotRun) if fn did not run, or if fn itself
//     returned such an error.
//   - fn's error, unchanged, if fn failed. If the lease ended before fn returned context.Canceled
//     or context.DeadlineExceeded, the error wraps both the cause and fn's error.
//   - lockcore.ErrLost, ErrMaxHold, ErrStalled, ErrRevoked, ErrReplaced or ErrGivenUp if fn
//     returned nil, but the lease had ended before.
//   - nil if fn returned nil and the call held the key until fn returned or called [Ticket].
//
// The key is released when fn has returned or panicked, and never before. The panic continues. If
// the release fails, Exclusive does not return that error, and the Observer gets it as
// Released.Err. The key is free at the end of the lease at the latest.
func Exclusive(ctx context.Context, locks *lockcore.Locker, key string, t lockcore.Terms, fn func(context.Context) error) error {
	return runHolding(ctx, "Exclusive", locks, key, lockcore.Limit{}, t, fn)
}

// runHolding acquires a share of the key, or the key alone if n is zero, runs fn, and releases the
// key. name is the function that error texts name.
func runHolding(ctx context.Context, name string, locks *lockcore.Locker, key string, n lockcore.Limit, t lockcore.Terms, fn func(context.Context) error) (err error) {
	if locks == nil || fn == nil {
		return errtext.Prefix("guard: "+name+": locks and fn must not be nil", lockcore.ErrNotRun)
	}
	lease, err := acquireOrAdopt(ctx, locks, key, n, t)
	if err != nil {
		return err
	}
	// fn's return sets err. If fn panics, err keeps this value.
	err = errNoReturn
	defer func() { //planted:exclusive-release
		err = pauseAfter(ctx, locks, key, err) // before the release, so that no call begins between the two
		lease.Failed(err)
		lost := lease.Release(ctx)
		if lease.Transferred() && err == nil {
			lost = nil
		}
		err = because(lost, err)
	}()
	return fn(lease.Context()) //planted:exclusive-run
}

// errNoReturn is the error that the Observer gets for a handler that panicked or called
// runtime.Goexit.
var errNoReturn error = noReturnError{}

type noReturnError struct{}

func (noReturnError) Error() string { return "guard: the handler panicked or called runtime.Goexit" }

// ErrorType returns the class of the error for telemetry: the value of error.type.
func (noReturnError) ErrorType() string { return "panic" }
