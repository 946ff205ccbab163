package guard

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Shared runs fn as a reader: beside any number of other Shared calls of the same key, but never
// beside an [Exclusive] call of that key. It waits up to t.Wait (2 s by default) for the key.
// Shared returns the errors of Exclusive.
//
//   - Calls of one process that begin within 5 ms share one lease.
//   - A later Shared does not overtake an Exclusive that waits for the key. Only the calls within
//     these 5 ms may do so.
//   - A Shared of the same key inside fn, with fn's ctx, is nested, as in Exclusive. It sends no
//     command. Nested calls with the same ctx run one at a time.
//   - An Exclusive or [Limited] of the key inside fn fails with lockcore.ErrUpgrade at once. Two
//     readers that waited to become the writer would wait for each other.
//   - Shared runs beside any number of Limited calls. For those, the readers that share one lease
//     count as one call of weight 1.
func Shared(ctx context.Context, locks *lockcore.Locker, key string, t lockcore.Terms, fn func(context.Context) error) error {
	return runHolding(ctx, "Shared", locks, key, lockcore.Limit{N: lockcore.Unlimited}, t, fn)
}

// Limited runs fn while it holds one of n.N permits of the key. So at most n.N calls of the key run
// at the same time, in all processes with the same Redis and prefix. With n.Weight a call adds that
// weight toward n.N. With n.Rate calls also begin at that rate, see [Throttled]. Limited returns
// the errors of [Exclusive].
//
//   - Calls of one process are granted in the order of their arrival, and processes take turns. A
//     call whose weight does not fit yet keeps the calls behind it waiting, even if there is room
//     for them.
//   - n may differ from call to call and may change at any time. Each call is granted by its own n,
//     so all calls of a key should have the same n.N. Those of [LimitedAll] need it.
//   - An Exclusive of the key waits until all permits are released. Meanwhile no new permit is
//     granted.
//   - A [Shared] of the key is granted even if all permits are held. Use only one of the two for a
//     key.
//   - A call of the same key inside fn, with fn's ctx, is nested and takes no further permit.
//     Nested calls with the same ctx run one at a time. A nested call with a smaller N or a greater
//     Weight fails with lockcore.ErrUpgrade, because the permit of fn does not cover it.
func Limited(ctx context.Context, locks *lockcore.Locker, key string, n lockcore.Limit, t lockcore.Terms, fn func(context.Context) error) error {
	if err := n.Validate(); err != nil { // the zero value would get the key alone
		return errtext.Wrap(lockcore.ErrNotRun, errtext.Prefix("guard: Limited", err))
	}
	return runHolding(ctx, "Limited", locks, key, n, t, fn)
}
