package asynqmw

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// KeyLimit is a key and its limit, for [LimitedAll].
type KeyLimit struct {
	Key guard.Key
	// Limit of the key. With N 0 and a Rate the task only waits for the rate of the key, as under
	// [Throttled].
	Limit lockcore.Limit
}

// LimitsFunc returns the keys and limits of a task, for [LimitedAll]: 1 to 16 different keys in any
// order. A key that is returned again with the same Limit counts once. All tasks of a key should
// have the same N. LimitsFunc is called like a [KeyFunc], and its errors have the same meaning. A
// limit that is not valid has the same effect as an error.
type LimitsFunc func(ctx context.Context, t *asynq.Task) ([]KeyLimit, error)

// LimitedAll is [Limited] for tasks under several limits, such as 3 tasks of a tenant and 20 of all
// tenants. The handler runs while it holds a permit of each key. The smallest N is acquired first,
// see [guard.LimitedAll], which also says when two tasks can wait for each other. Terms.Wait bounds
// the time for all keys.
//
// The default of Terms.Name is the different classes of the keys, sorted and joined by a plus sign.
// A task for which there is no room is treated as a task of [Exclusive] whose key is busy. With
// [Parking] it is parked on the key that is busy, and holds no permit. When it is woken and finds
// another of its keys busy, it leaves its place and is parked on that key, at the end. So on a key of
// all tenants the tasks of a tenant with many tasks may be in front of the others, and Parking.Weight
// does not change that. To prevent it, call guard.Limited for that key in the handler, under Limited
// for the tenant: the task then waits in its worker.
//
// LimitedAll panics if locks or limits is nil, or if o is not valid.
func LimitedAll(locks *lockcore.Locker, limits LimitsFunc, o ShareOptions) asynq.MiddlewareFunc {
	d := newDecorator("LimitedAll", locks, "limits", limits, o.Validate(), o.Terms, o.Busy)
	d.limited = true
	return d.middleware(d.exclusive)
}

// checkLimits returns every problem of the limits of a task.
func checkLimits(keys []KeyLimit) error {
	var errs []error
	first := map[string]lockcore.Limit{}
	for _, k := range keys {
		name := k.Key.String()
		if what := fmt.Sprintf("the limit of key %q", name); k.Limit.N == 0 && k.Limit.Weight == 0 && k.Limit.Rate != (lockcore.Rate{}) {
			errs = append(errs, checkRate(what, k.Limit.Rate))
		} else {
			errs = append(errs, checkLimit(what, k.Limit))
		}
		if n, again := first[name]; !again {
			first[name] = k.Limit
		} else if n != k.Limit {
			errs = append(errs, fmt.Errorf("asynqmw: key %q has the limits %+v and %+v, must have one", name, n, k.Limit))
		}
	}
	return errtext.Join(errs...)
}
