package guard

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Throttled runs fn when the rate of key lets it begin: at most r.N + r.Burst - 1 calls of cost 1
// in any r.Per (Burst is 1 by default), in all processes with the same Redis and prefix. Calls wait
// in turn, up to o.Wait (2 s by default). A call whose turn is later is refused at once, with a
// *lockcore.BusyError whose Remaining is the time until its turn. fn gets ctx as it is: Throttled
// holds nothing while fn runs.
//
// Throttled returns fn's error, or an error of [lockcore.Locker.Throttle], which satisfies
// errors.Is(err, lockcore.ErrNotRun). [lockcore.Rate] has the rules of rates.
//
//   - [Limited] with Limit.Rate also bounds how many calls run at the same time.
//   - A Throttled of the same key inside fn takes its cost again.
//   - Throttled waits for an [Exclusive] of the key. But an Exclusive does not wait for fn, and
//     runs beside it. Use different keys.
func Throttled(ctx context.Context, locks *lockcore.Locker, key string, r lockcore.Rate, o lockcore.ThrottleOptions, fn func(context.Context) error) error {
	if locks == nil || fn == nil {
		return errtext.Prefix("guard: Throttled: locks and fn must not be nil", lockcore.ErrNotRun)
	}
	if _, err := locks.Throttle(ctx, key, r, o); err != nil {
		return err
	}
	return pauseAfter(ctx, locks, key, fn(ctx))
}

// Spend takes r.Cost from the rate of key at once, for a cost that is known only after the call. An
// LLM allows 100,000 tokens in a minute. An answer used 1,200, and Throttled has taken 1 of them:
//
//	guard.Spend(ctx, locks, "llm", lockcore.Rate{N: 100_000, Per: time.Minute, Burst: 5_000, Cost: 1_199})
//
// r has the N, Per and Burst of the calls. Spend does not wait, and later calls of [Throttled] wait
// for this cost too. The errors are those of [lockcore.Locker.Spend]: lockcore.ErrUnavailable if
// Redis does not reply within a second, ErrClosed, ErrUnsupported on a majority of servers, or what
// is wrong with key or r.
func Spend(ctx context.Context, locks *lockcore.Locker, key string, r lockcore.Rate) error {
	if locks == nil {
		return errtext.Prefix("guard: Spend: locks must not be nil", lockcore.ErrNotRun)
	}
	return locks.Spend(ctx, key, r)
}
