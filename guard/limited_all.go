package guard

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// KeyLimit is a key and its limit, for [LimitedAll].
type KeyLimit struct {
	Key string
	// Limit of the key. With N 0 and a Rate the call only waits for the rate of the key, as
	// [Throttled] does.
	Limit lockcore.Limit
}

// rateOnly reports whether the call holds nothing of the key.
func (n KeyLimit) rateOnly() bool { return n.Limit.N == 0 && n.Limit.Rate.N > 0 }

// LimitedAll runs fn while it holds a permit of each key: it is [Limited] for several limits at
// once, such as 3 calls of a tenant and 20 of all tenants. If it cannot acquire one of them, fn
// does not run. limits has 1 to 16 different keys in any order. A key that is given again with the
// same Limit counts once.
//
// LimitedAll nests calls of Limited. It acquires the limits with the smallest N first, and waits for
// each in the wait queue of that key. Limits with the same N are acquired in the byte order of their
// keys. Then come lockcore.Unlimited and, the slowest first, rates without a limit. So a call that
// waits for its tenant holds no permit of all tenants. The wait, the terms, a busy key and a lost lease
// are as for [ExclusiveAll]: t.Wait bounds the whole wait, and if a key stays busy, the permits of the
// other keys are released.
//
// A call takes from a rate only when it has all permits. So only the limit that comes last may have an
// N and a Rate. If one of several rates refuses a call, the costs of those before it stay taken.
//
// Calls of LimitedAll do not deadlock if all of them give a key the same N, because they then
// acquire all keys in one order. In these cases two calls can wait for each other until the Wait of
// one of them is over. So do not use lockcore.Forever there:
//
//   - Two calls disagree on which of two keys has the smaller N, for example during a deploy.
//   - A call holds a key, and calls LimitedAll for a key that comes before it in the order.
//   - ExclusiveAll acquires two of the keys, because it acquires them in byte order.
//
// Invalid limits or terms are refused before any key is acquired.
func LimitedAll(ctx context.Context, locks *lockcore.Locker, limits []KeyLimit, t lockcore.Terms, fn func(context.Context) error) error {
	sorted, bad := limitSet(limits)
	return runAll(ctx, "LimitedAll", locks, sorted, bad, t, fn)
}

// before compares two limits by the order in which LimitedAll acquires them.
//
// Invariant: a call that waits for a key holds only keys before it. If all calls give a key the same
// limit, this order is the same for all of them. So a call waits for calls that hold its key or are
// in front of it in the queue, and a call that holds the key runs fn or waits for a later key. There
// are finitely many keys, so each chain of waits ends at a call that runs fn.
func before(a, b KeyLimit) int {
	return cmp.Or(cmp.Compare(a.width(), b.width()), cmp.Compare(a.pace(), b.pace()), cmp.Compare(a.Key, b.Key))
}

// width is the first criterion of before: the narrower limit is acquired first, and rates come last.
func (n KeyLimit) width() int {
	switch {
	case n.rateOnly():
		return math.MaxInt
	case n.Limit.N == lockcore.Unlimited:
		return math.MaxInt - 1
	}
	return n.Limit.N
}

// pace is the second criterion of before: the slower rate comes first.
func (n KeyLimit) pace() int64 {
	if n.rateOnly() {
		return -int64(n.Limit.Rate.Interval())
	}
	return 0
}

func (n KeyLimit) validate() error {
	if n.Limit.N == 0 && n.Limit.Weight == 0 && n.Limit.Rate != (lockcore.Rate{}) {
		return n.Limit.Rate.Validate()
	}
	return n.Limit.Validate()
}

// limitSet returns the different limits in the order in which they are acquired, and an error with
// every problem of limits.
func limitSet(limits []KeyLimit) (sorted []KeyLimit, err error) {
	var errs []error
	first := map[string]int{} // the index of each key
	for i, n := range limits {
		field := fmt.Sprintf("limits[%d]", i)
		errs = append(errs, checkKey(field+".Key", n.Key))
		if err := n.validate(); err != nil {
			errs = append(errs, errtext.Prefix("guard: LimitedAll: "+field, err))
		}
		j, again := first[n.Key]
		if !again {
			first[n.Key] = i
			sorted = append(sorted, n)
		} else if n.Limit != limits[j].Limit {
			errs = append(errs, fmt.Errorf("guard: LimitedAll: %s has the key of limits[%d] with another Limit, %+v, must be %+v", field, j, n.Limit, limits[j].Limit))
		}
	}
	slices.SortFunc(sorted, before) //planted:limits-in-order
	for i, n := range sorted {
		if n.Limit.N > 0 && n.Limit.Rate.N > 0 && i+1 < len(sorted) {
			errs = append(errs, fmt.Errorf("guard: LimitedAll: key %q has N %d and a Rate, but key %q is acquired after it: a call that waits for that one would have taken from the rate. Give the rate a key of its own, with N 0", n.Key, n.Limit.N, sorted[i+1].Key))
		}
	}
	return sorted, errtext.Join(append(errs, checkCount("LimitedAll: limits", len(sorted)))...)
}
