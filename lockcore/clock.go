package lockcore

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// elapsed returns the time since from, see between.
func elapsed(from time.Time) time.Duration { return between(from, time.Now()) }

// between returns the time from one reading of the clock to a later one, by the monotonic clock or
// the wall clock. It returns the greater value, because the monotonic clock stops while the machine
// is suspended. So a wall clock that jumps ahead ends leases early, which is safe. A wall clock
// that jumps back has no effect.
func between(from, now time.Time) time.Duration {
	return max(now.Sub(from), time.Duration(now.UnixNano()-from.UnixNano()))
}

// endOf returns why ctx has ended, or nil. The cause is set when the timer of ctx has fired, which
// may be a moment after the deadline. So endOf waits for that for up to 10 ms.
func endOf(ctx context.Context) error {
	if !backend.Ended(ctx) {
		return nil
	}
	if ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return context.DeadlineExceeded // a custom ctx that has a deadline but no timer
}
