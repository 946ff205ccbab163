package lockcore

import (
	"fmt"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	// MaxLimit is the greatest Limit.N.
	MaxLimit = 1_000_000

	// Unlimited as Limit.N gets a share next to any number of others: the share of a reader.
	Unlimited = -1
)

// Limit says how many calls may hold a key at the same time, for [Locker.AcquireShare].
//
// A call is granted when the weights of all shares, its own included, are together at most N. Each
// call is granted by its own Limit, so all calls for a key should have the same N. It may change at
// any time. With Terms.MinHold the weight of a share counts for at least that time. So the holds
// that begin in any MinHold have together at most the weight N, unless a lease ends early.
type Limit struct {
	// N bounds the sum of the weights: 1 to 1,000,000, or Unlimited.
	N int
	// Weight is how much of N the share takes. Default: 1. At most N; 0 with Unlimited.
	Weight int
}

// Validate reports every problem of n at once. Each message names the field, its value and the
// bound. Call it for settings that come from a file.
func (n Limit) Validate() error {
	var bad, weight error
	switch {
	case n.N == Unlimited:
		if n.Weight != 0 {
			weight = fmt.Errorf("lockcore: Limit.Weight is %d, must be 0 with Unlimited", n.Weight)
		}
	case n.N < 1 || n.N > MaxLimit:
		bad = fmt.Errorf("lockcore: Limit.N is %d, must be between 1 and %d, or Unlimited", n.N, MaxLimit)
		if n.Weight < 0 {
			weight = fmt.Errorf("lockcore: Limit.Weight is %d, must be at least 0", n.Weight)
		}
	case n.Weight < 0 || n.Weight > n.N:
		weight = fmt.Errorf("lockcore: Limit.Weight is %d, must be between 0 and N, which is %d", n.Weight, n.N)
	}
	return errtext.Join(bad, weight)
}

// share returns the share that n is for, or the zero value for the key alone.
func (n Limit) share() backend.Share {
	switch n.N {
	case 0:
		return backend.Share{}
	case Unlimited:
		return backend.Share{Limit: backend.Unlimited, Weight: 1}
	}
	return backend.Share{Limit: n.N, Weight: max(n.Weight, 1)}
}

// limitOf returns the limit for which s was granted.
func limitOf(s backend.Share) Limit {
	if s.Limit == backend.Unlimited {
		return Limit{N: Unlimited}
	}
	return Limit{N: s.Limit, Weight: s.Weight}
}
