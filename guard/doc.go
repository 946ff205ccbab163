// Package guard runs a function once, or alone.
//
// Unique = not twice in the queue (that is your queue's business). [Exclusive] = not twice at the same time. [Once] = not
// twice within Keep.
//
//	err := guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, func(ctx context.Context) error {
//		return transfer(ctx)
//	})
//
//	outcome, err := guard.Once(ctx, locks, "charge:7", guard.OnceOptions{}, func(ctx context.Context) error {
//		return charge(ctx)
//	})
//
// They compose by nesting. Once outside, Exclusive inside: a replay then does not wait for the account.
//
// # Guarantees
//
// The function gets a ctx that is canceled before the lease can end; the key is given back when the function has returned,
// even if it panics, and never before. A nested call for the same key costs no command. Nested calls with the same ctx
// run one at a time. A run that is not recorded is never taken for done, and a record is never replaced: what is
// replayed is what the first run that was recorded returned.
//
// # What it cannot promise
//
// A crash between the effect of the function and its record cannot be closed from outside. [Mode] chooses: AtLeastOnce
// runs it again. AtMostOnce refuses it until an operator clears the key (holdfast clear -once), or Keep is over. And
// see package lockcore.
//
// # What you must do
//
// Keep must be longer than the time within which the same work may arrive again. Keys name the work, not the delivery: "charge:7", not a random
// ID. Stop when ctx ends, and return its error or context.Cause(ctx). Take nested keys in one order everywhere, or all at once with [ExclusiveAll]. What
// the function starts and leaves running must be given [Detach]'s ctx.
//
// # Mistakes at start-up
//
// One rule holds for all packages of this module. A constructor that returns a decorator or a KeyFunc,
// such as asynqmw.Once, httpmw.Exclusive and asynqmw.ByJSON, panics on nil arguments and on options
// that Validate refuses, as http.ServeMux does: they are mistakes of the program. Call Validate before
// for options that come from a file. A constructor that returns a resource, such as lockcore.New,
// cronmw.New, asynqmw.NewTicks and tracing.New, returns an error. The functions of this package return
// the error of each call, which satisfies errors.Is(err, lockcore.ErrNotRun).
//
// # Testing
//
// See package locktest.
package guard
