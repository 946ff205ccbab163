package redistest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	controlMoment = time.Millisecond // pause between two passes of a Control
	controlUsual  = time.Millisecond // usual delay of a timer and a pass on an idle machine
)

// Control measures how late the machine is while a test runs. It repeatedly sleeps for a moment,
// then passes a value to another goroutine and back. A time limit plus Late limits the code, not
// the machine.
type Control struct {
	mu    sync.Mutex
	beat  time.Time // when the pass under way began
	sums  []lateSum // by time
	total time.Duration
}

// lateSum is the total delay of all passes up to a time.
type lateSum struct {
	at    time.Time
	total time.Duration
}

// NewControl starts a control. It ends with the test.
func NewControl(tb testing.TB) *Control {
	tb.Helper()
	c := &Control{beat: time.Now()}
	ping, pong, stop := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for range ping {
			pong <- struct{}{}
		}
	})
	wg.Go(func() {
		defer close(ping)
		for {
			select {
			case <-stop:
				return
			case <-time.After(controlMoment):
			}
			ping <- struct{}{}
			<-pong
			c.ended(time.Now())
		}
	})
	tb.Cleanup(func() { close(stop); wg.Wait() })
	return c
}

func (c *Control) ended(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if late := now.Sub(c.beat) - controlMoment - controlUsual; late > 0 {
		c.total += late
		c.sums = append(c.sums, lateSum{now, c.total})
	}
	c.beat = now
}

// Late returns how much longer than usual an action from start until now may have taken on this
// machine. That is twice the delay of the control in that time: once for this process and once for
// the server.
func (c *Control) Late(start time.Time) time.Duration { return c.Between(start, time.Now()) }

// Between is Late for an action that ended at end.
func (c *Control) Between(start, end time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	first, past := c.indexLocked(start), c.indexLocked(end)
	if past < len(c.sums) {
		past++ // the pass that was under way at end
	}
	late := time.Duration(0)
	if past > 0 {
		late = c.sums[past-1].total
	}
	if first > 0 {
		late -= c.sums[first-1].total
	}
	if end.After(c.beat) {
		late += max(time.Since(c.beat)-controlMoment-controlUsual, 0)
	}
	return 2 * late
}

// indexLocked returns the index of the first sum at t or later.
func (c *Control) indexLocked(t time.Time) int {
	i, _ := slices.BinarySearchFunc(c.sums, t, func(s lateSum, t time.Time) int { return s.at.Compare(t) })
	return i
}
