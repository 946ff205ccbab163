package parking

import (
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxRetry = time.Minute      // until a task comes back whose key is paused, or whose turn is later
	maxLate  = 10 * time.Second // after the end of a pause or the turn of a task
)

// RetryAfter returns the delay of a task that found its key busy and is not parked: b.RetryAfter
// ± 25 %, so that the tasks that found a key busy together do not come back together. A task that comes back before the end of a pause
// or before its turn finds the key busy again, so then it is RetryAfter or up to 25 % more, at most 10 s.
// No one tells the task that a pause was ended early, or that calls with great costs before it have given
// up, so it looks each minute, as if the key was held.
func RetryAfter(b *lockcore.BusyError) time.Duration {
	d := b.RetryAfter()
	spread := d / 2
	if b.PauseReason != "" || b.Exact {
		d = min(d, maxRetry)
		spread = min(d/4, maxLate)
	} else {
		d = d * 3 / 4
	}
	return d + time.Duration(rand.Float64()*float64(spread))
}
