package guard

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Throttled runs fn when the rate of key lets it begin: at most r.N + r.Burst - 1 calls in any r.Per,
// in all processes with the same Redis and prefix. Calls wait in turn, up to o.Wait (2 s by default).
// A call whose turn is later is refused at once, with a *lockcore.BusyError whose Remaining is the
// time until its turn. fn gets ctx as it is: Throttled holds nothing while fn runs.
//
// Throttled returns fn's error, or an error of [lockcore.Locker.Throttle], which satisfies
// errors.Is(err, lockcore.ErrNotRun). [lockcore.Rate] has the rules of rates.
//
//   - [Limited] with Limit.Rate also bounds how many calls run at the same time.
//   - A Throttled of the same key inside fn takes its cost again.
//   - An [Exclusive] of the key runs beside fn, and Throttled waits for it. Use different keys.
func Throttled(ctx context.Context, locks *lockcore.Locker, key string, r lockcore.Rate, o lockcore.ThrottleOptions, fn func(context.Context) error) error {
	if locks == nil || fn == nil {
		return errtext.Prefix("guard: Throttled: locks and fn must not be nil", lockcore.ErrNotRun)
	}
	if _, err := locks.Throttle(ctx, key, r, o); err != nil {
		return err
	}
	return pauseAfter(ctx, locks, key, fn(ctx))
}

// Spend takes the cost of r from the rate of key without waiting: the part of a cost that is known
// only after the call, as the tokens of an answer. Later calls of [Throttled] wait for it. See
// [lockcore.Locker.Spend].
func Spend(ctx context.Context, locks *lockcore.Locker, key string, r lockcore.Rate) error {
	if locks == nil {
		return errtext.Prefix("guard: Spend: locks must not be nil", lockcore.ErrNotRun)
	}
	return locks.Spend(ctx, key, r)
}
