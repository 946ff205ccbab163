package lockcore

import "time"

// elapsed is the time since from, by the monotonic or the wall clock, whichever says more: the monotonic clock stands
// still while the machine is suspended. A wall clock that jumps ahead costs a lease, one that jumps back nothing.
func elapsed(from time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))
}
