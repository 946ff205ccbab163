package cronmw

import (
	"slices"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

const maxDue = 1024 // the maximum number of ticks that wrappers of the chain delay or skip; older ones are dropped

// transfer passes ticks from the Schedule, which cron calls for times, to the Job, which cron calls
// without a time.
//
// Cron starts the job for each time that Next has returned, in a goroutine. That goroutine may call
// Run late, or never, if a wrapper of the chain skips it. So Run takes the newest due tick that no
// other Run has taken. Then n goroutines take n ticks, in any order, and skipped ticks remain
// behind newer ones. With Entry.Prev or a clock instead, two goroutines could get the same tick.
//
// Other code may call Next with any time. So Run takes only ticks that are due. Of the future ticks
// only the nearest is kept, because cron waits for that one.
type transfer struct {
	cron.Schedule
	mu   sync.Mutex
	next time.Time   // the nearest future tick
	due  []time.Time // ticks that are due and not taken, in order
}

// Next implements cron.Schedule: it returns the next tick after t.
func (h *transfer) Next(t time.Time) time.Time {
	tick := h.Schedule.Next(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	h.comeLocked(now)
	switch {
	case tick.IsZero():
	case !tick.After(now):
		h.addLocked(tick)
	case h.next.IsZero() || tick.Before(h.next):
		h.next = tick
	}
	return tick
}

// take returns the tick for a goroutine that cron has started. It returns false if there is none,
// because other code has called Run.
func (h *transfer) take() (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.comeLocked(time.Now())
	last := len(h.due) - 1
	if last < 0 {
		return time.Time{}, false
	}
	tick := h.due[last]
	h.due = h.due[:last]
	return tick, true
}

// comeLocked moves next to due if it is due now.
func (h *transfer) comeLocked(now time.Time) {
	if !h.next.IsZero() && !h.next.After(now) { // the same comparison as in cron
		h.addLocked(h.next)
		h.next = time.Time{}
	}
}

func (h *transfer) addLocked(tick time.Time) {
	i, found := slices.BinarySearchFunc(h.due, tick, time.Time.Compare)
	if found {
		return
	}
	h.due = slices.Insert(h.due, i, tick)
	if len(h.due) > maxDue {
		h.due = slices.Delete(h.due, 0, 1)
	}
}
