package lockcore

import "time"

// elapsed is the time since from, see between.
func elapsed(from time.Time) time.Duration { return between(from, time.Now()) }

// between is the time from one reading of the clock to a later one, by the monotonic or the wall clock, whichever is
// more: the monotonic clock stands still while the machine is suspended. A wall clock that jumps ahead costs a lease, one
// that jumps back nothing.
func between(from, now time.Time) time.Duration {
	return max(now.Sub(from), time.Duration(now.UnixNano()-from.UnixNano()))
}
