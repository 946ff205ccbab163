package soak_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// joinTime is longer than the time during which calls of the same process may join a lease or take
// it over. So a lease may be that much older than the call that has it.
const joinTime = 10 * time.Millisecond

// shareProblems returns what is wrong with the holds, which it sorts. A hold counts from the time
// when its worker saw it first to the last time at which its lease was valid. The reason is that a
// stopped process learns of the loss of its lease only when it goes on. So each key is in order if,
// whenever a hold begins,
//
//   - an exclusive hold is alone, and its token is greater than all before,
//   - a share is beside no exclusive hold, and has the token of the others, or a greater one,
//   - the shares can have been granted one after the other, each within its own limit.
//
// Redis may grant a share to a waiter some time before the waiter learns of it. So the grant is
// between the call and the time when the worker saw the hold.
func shareProblems(holds []*inside) (bad []string) {
	slices.SortStableFunc(holds, func(a, b *inside) int { return cmp.Compare(a.Seen, b.Seen) })
	now, last := map[string][]*inside{}, map[string]int64{}
	for _, h := range holds {
		others := slices.DeleteFunc(now[h.Key], func(o *inside) bool { return o.Valid < h.Seen })
		now[h.Key] = append(others, h)
		problem := h.beside(others, last[h.Key])
		if problem == "" {
			problem = tooHeavy(now[h.Key])
		}
		if problem != "" {
			bad = append(bad, fmt.Sprintf("%s of %s: %s: %+v", h.Key, h.proc, problem, *h))
		}
		last[h.Key] = max(last[h.Key], h.Token)
	}
	return bad
}

// beside returns what is wrong with h beside others. last is the greatest token before it.
func (h *inside) beside(others []*inside, last int64) string {
	for _, o := range others {
		switch {
		case h.Limit == 0 || o.Limit == 0:
			return fmt.Sprintf("beside %+v of %s", *o, o.proc)
		case o.Token != h.Token:
			return fmt.Sprintf("another token beside %+v of %s", *o, o.proc)
		}
	}
	if h.Token < last || h.Limit == 0 && h.Token == last {
		return fmt.Sprintf("the token does not grow from %d", last)
	}
	return ""
}

// tooHeavy looks for an order of grants in which each share was within its limit. It removes, one
// after the other, a share that may have been granted last.
func tooHeavy(shares []*inside) string {
	left := slices.Clone(shares)
	for len(left) > 0 {
		weight := weigh(left)
		last := slices.IndexFunc(left, func(h *inside) bool {
			return (h.Limit <= 0 || weight <= h.Limit) &&
				!slices.ContainsFunc(left, func(o *inside) bool { return h.Seen < o.Called-int64(joinTime) })
		})
		if last < 0 {
			var b strings.Builder
			for _, h := range left {
				fmt.Fprintf(&b, "\n\t%+v of %s", *h, h.proc)
			}
			return fmt.Sprintf("no order of grants explains a weight of %d:%s", weight, b.String())
		}
		left = slices.Delete(left, last, last+1)
	}
	return ""
}

// weigh returns the least total weight that the shares can have. Readers of one process may have
// one lease.
func weigh(shares []*inside) (weight int) {
	readers := map[string]bool{}
	for _, h := range shares {
		if h.Limit == lockcore.Unlimited {
			readers[h.proc] = true
		} else {
			weight += h.Weight
		}
	}
	return weight + len(readers)
}

// shareProblems finds each of these mistakes.
func TestShareProblems(t *testing.T) {
	t.Parallel()
	hold := func(limit, weight int, token, seen, valid int64) *inside {
		seen, valid = seen*int64(time.Second), valid*int64(time.Second)
		return &inside{Key: "k", Limit: limit, Weight: weight, Token: token, Called: seen, Seen: seen, Valid: valid, proc: fmt.Sprint(seen)}
	}
	for name, c := range map[string]struct {
		holds []*inside
		bad   int
	}{
		"nothing":                    {[]*inside{hold(3, 2, 5, 1, 9), hold(3, 1, 5, 2, 3), hold(5, 3, 5, 4, 6), hold(0, 1, 7, 10, 11), hold(-1, 1, 8, 12, 13)}, 0},
		"in another order":           {[]*inside{hold(5, 2, 5, 1, 9), {Key: "k", Limit: 3, Weight: 3, Token: 5, Seen: 2 * int64(time.Second), Valid: 3 * int64(time.Second)}}, 0},
		"too heavy":                  {[]*inside{hold(3, 2, 5, 1, 9), hold(3, 2, 5, 2, 3)}, 1},
		"too heavy beside readers":   {[]*inside{hold(-1, 1, 5, 1, 9), hold(-1, 1, 5, 2, 9), hold(3, 2, 5, 3, 4)}, 1},
		"a writer beside a reader":   {[]*inside{hold(-1, 1, 5, 1, 9), hold(0, 1, 7, 2, 3)}, 1},
		"a reader beside a writer":   {[]*inside{hold(0, 1, 5, 1, 9), hold(-1, 1, 7, 2, 3)}, 1},
		"two tokens":                 {[]*inside{hold(-1, 1, 5, 1, 9), hold(-1, 1, 6, 2, 3)}, 1},
		"a writer with an old token": {[]*inside{hold(-1, 1, 5, 1, 2), hold(0, 1, 5, 3, 4)}, 1},
	} {
		if bad := shareProblems(c.holds); len(bad) != c.bad {
			t.Errorf("%s: %q", name, bad)
		}
	}
}
