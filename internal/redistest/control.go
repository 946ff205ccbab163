package redistest

import (
	"slices"
	"sync"
	"testing"
	"time"
)

const (
	controlMoment = time.Millisecond // between two hand-overs of a Control
	controlUsual  = time.Millisecond // by which a timer and a hand-over are late on a machine that is idle
)

// Control measures by how much the machine is late while a test runs: it sleeps for a moment and hands a value over to
// another goroutine and back, again and again. A bound in real time plus Late is a bound of the code, not of the machine.
type Control struct {
	mu    sync.Mutex
	beat  time.Time // when the hand-over that is under way began
	sums  []lateSum // by time
	total time.Duration
}

// lateSum says by how much all hand-overs up to then were late in sum.
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

// Late returns by how much more than usual what began at start, and ends now, may have taken on this machine: twice the
// time by which the control was late meanwhile, once for this process and once for the server that it talks to.
func (c *Control) Late(start time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, _ := slices.BinarySearchFunc(c.sums, start, func(s lateSum, t time.Time) int { return s.at.Compare(t) })
	late := c.total
	if i > 0 {
		late -= c.sums[i-1].total
	}
	late += max(time.Since(c.beat)-controlMoment-controlUsual, 0)
	return 2 * late
}
