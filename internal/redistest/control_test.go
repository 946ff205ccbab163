package redistest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// In a bubble the clock stops while a goroutine runs, so nothing is late.
func TestControlOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, start := redistest.NewControl(t), time.Now()
		time.Sleep(10 * time.Second)
		if late := c.Late(start); late != 0 {
			t.Errorf("late by %v", late)
		}
	})
}

// A delay counts only for actions that were under way during the delay, also before it has ended.
func TestControlLate(t *testing.T) {
	start := time.Now()
	c := redistest.ControlAt(start)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	c.Ended(at(2 * time.Millisecond))   // usual
	c.Ended(at(52 * time.Millisecond))  // 48 ms late
	c.Ended(at(54 * time.Millisecond))  // usual
	c.Ended(at(154 * time.Millisecond)) // 98 ms late
	c.Ended(time.Now().Add(time.Hour))  // no action is under way
	hour := c.Late(at(200 * time.Millisecond))
	if got := c.Late(at(60*time.Millisecond)) - hour; got != 2*98*time.Millisecond {
		t.Errorf("since 60 ms: %v", got)
	}
	if got := c.Late(at(time.Millisecond)) - hour; got != 2*146*time.Millisecond {
		t.Errorf("since 1 ms: %v", got)
	}
	for _, b := range []struct {
		from, to, want time.Duration
	}{{1, 40, 96}, {1, 60, 292}, {53, 54, 196}, {3, 52, 96}} {
		got := c.Between(at(b.from*time.Millisecond), at(b.to*time.Millisecond))
		if got != b.want*time.Millisecond {
			t.Errorf("from %d to %d ms: %v, want %d ms", b.from, b.to, got, b.want)
		}
	}
}
