package guard

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Shared runs fn beside any number of other Shared of the same key, and never beside an [Exclusive]
// of it: fn is a reader. It waits up to t.Wait (2 s by default) for its turn, and does not overtake a
// call that waits for the key alone. Calls of one process that begin within 5 ms share one lease.
//
// A Shared of the same key inside fn, with fn's ctx, is nested, as in Exclusive. An Exclusive inside
// fn is refused with lockcore.ErrUpgrade at once: two readers that both wait to become the writer
// would wait for each other. t.Limit and t.Weight must be 0. Otherwise Shared returns what Exclusive
// returns.
func Shared(ctx context.Context, locks *lockcore.Locker, key string, t lockcore.Terms, fn func(context.Context) error) error {
	if t.Limit != 0 || t.Weight != 0 {
		return refuseShare("Shared", "0", t)
	}
	t.Limit = lockcore.Unlimited
	return hold(ctx, "Shared", locks, key, t, fn)
}

// Limited runs fn while at most n calls of the key run, anywhere on the same Redis and prefix: n
// permits. With t.Weight a call takes as many permits. n may differ from call to call and may change
// at any time: each call is granted by its own n, so all calls of a key should have the same. With
// t.MinHold at most n calls begin within that time, which is a rate limit.
//
// An [Exclusive] of the key waits until all permits are released and keeps new ones out. A call of
// the same key inside fn, with fn's ctx, is nested and takes no further permit. If it asks for more,
// it is refused with lockcore.ErrUpgrade. n is 1 to 1,000,000, and t.Limit must be 0. Otherwise
// Limited returns what Exclusive returns.
func Limited(ctx context.Context, locks *lockcore.Locker, key string, n int, t lockcore.Terms, fn func(context.Context) error) error {
	switch {
	case t.Limit != 0:
		return refuseShare("Limited", "0, because n is the limit", t)
	case n < 1: // the upper bound is that of Terms.Limit
		return errtext.Wrap(lockcore.ErrNotRun, fmt.Errorf("guard: Limited: n is %d, must be between 1 and 1000000", n))
	}
	t.Limit = n
	return hold(ctx, "Limited", locks, key, t, fn)
}

func refuseShare(name, want string, t lockcore.Terms) error {
	return errtext.Wrap(lockcore.ErrNotRun, fmt.Errorf("guard: %s: Terms.Limit is %d and Terms.Weight is %d; Terms.Limit must be %s", name, t.Limit, t.Weight, want))
}
