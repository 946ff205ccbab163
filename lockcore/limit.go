package lockcore

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// Unlimited as Limit.N gets a share next to any number of others: the share of a reader.
const Unlimited = -1

const maxLimit = 1_000_000

// Limit says how many calls may hold a key at the same time. [Locker.AcquireShare] gets a share of
// the key next to others: a reader with Unlimited, a permit with a number. [Locker.Acquire] gets the
// key alone, as a writer. Shares and holds of the key alone exclude each other:
//
//	the key is              a share waits                      a call for the key alone waits
//	free                    no                                 no
//	held alone              yes                                yes
//	shared, no waiter       if the weights would exceed N      yes
//	shared, with waiters    yes                                yes
//
// The rules of shares:
//
//   - The Limit belongs to the call. Redis stores no number of permits, so a call with
//     another Limit needs no setup. Calls with different Limits are each granted by their own.
//   - Requests are granted in the order of their arrival. The first one that does not fit keeps all
//     behind it waiting. So neither a writer nor a call with a great weight starves. A waiting
//     process that sends nothing for 5 s counts as dead and is dropped.
//   - A phase lasts from the first share to the end of the last one. All shares of a phase have the
//     same Hold.ID and the same token. The token is greater than that of the hold before the phase,
//     and smaller than that of the hold after it. So a fence refuses what was read before a write.
//     The fence does not distinguish two permits of a phase.
//   - Calls of one process for Unlimited that begin within 5 ms use one share. This does not apply
//     to calls with a MinHold, or while a call of this process waits for the key. So a process
//     sends at most 200 such requests a second for a key. They overtake a waiting writer for at
//     most these 5 ms.
//   - Waiting calls of one process may follow each other under one permit for 5 ms, as in a batch
//     of hand-offs.
//   - Each hold of a share has its own ctx and its own MaxHold and Stall. A share whose process has
//     died is free at the end of its lease. It does not make the key abandoned.
//   - A nested call that requests more than the share of its hold fails with [ErrUpgrade] at once.
//     Release the share first.
//   - Shares are for exclusive keys only, not for Claim, and they have no tickets.
//
// A call is granted when the weights of all shares, its own included, are together at most N. Each
// call is granted by its own Limit, so all calls for a key should have the same N, and calls for
// several keys need it. It may change at any time. With Terms.MinHold the weight of a share counts
// for at least that time: all N begin at once, and then none until it is over, unless a lease ends
// early.
type Limit struct {
	// N bounds the sum of the weights: 1 to 1,000,000, or Unlimited.
	N int
	// Weight is how much of N the share takes. Default: 1. At most N; 0 with Unlimited.
	Weight int
	// Rate also bounds how often shares are granted. Default: none. Not with Unlimited:
	// [Locker.Throttle] has a rate alone. Each grant takes its cost, so such a share is not handed
	// to another call.
	Rate Rate
}

// Validate reports every problem of n at once. Each message names the field, its value and the
// bound. Call it for settings that come from a file.
func (n Limit) Validate() error {
	var bad, weight, rate error
	if n.Rate != (Rate{}) {
		rate = n.Rate.Validate()
	}
	switch {
	case n.N == 0 && n.Rate.N != 0:
		bad = errors.New("lockcore: Limit.N is 0, must be at least 1: use Throttled or Locker.Throttle for a Rate alone")
	case n.N == Unlimited && n.Rate.N != 0:
		bad = errors.New("lockcore: Limit.Rate must be zero with Unlimited: use Throttled or Locker.Throttle for a Rate alone")
	case n.N == Unlimited:
		if n.Weight != 0 {
			weight = fmt.Errorf("lockcore: Limit.Weight is %d, must be 0 with Unlimited", n.Weight)
		}
	case n.N < 1 || n.N > maxLimit:
		bad = fmt.Errorf("lockcore: Limit.N is %d, must be between 1 and %d, or Unlimited", n.N, maxLimit)
		if n.Weight < 0 {
			weight = fmt.Errorf("lockcore: Limit.Weight is %d, must be at least 0", n.Weight)
		}
	case n.Weight < 0 || n.Weight > n.N:
		weight = fmt.Errorf("lockcore: Limit.Weight is %d, must be between 0 and N, which is %d", n.Weight, n.N)
	}
	return errtext.Join(bad, weight, rate)
}

// share returns the share that n is for, or the zero value for the key alone.
func (n Limit) share() backend.Share {
	s := backend.Share{Limit: n.N, Weight: max(n.Weight, 1)}
	switch n.N {
	case 0:
		s.Weight = 0
	case Unlimited:
		s.Limit = backend.Unlimited
	}
	if n.Rate.N > 0 {
		s.Rate = n.Rate.filled()
	}
	return s
}

// limitOf returns the limit for which s was granted.
func limitOf(s backend.Share) Limit {
	if s.Limit == backend.Unlimited {
		return Limit{N: Unlimited}
	}
	n := Limit{N: s.Limit, Weight: s.Weight}
	if r := s.Rate; r.N > 0 {
		n.Rate = Rate{N: r.N, Per: r.Per, Burst: r.Burst, Cost: r.Cost}
	}
	return n
}
