package cronmw

import (
	"slices"
	"sync"
	"time"

	"github.com/robfig/cron/v3"
)

const maxDue = 1024 // ticks that chain wrappers hold back; what they skip is dropped from there

// handover carries ticks from the Schedule, which cron asks for times, to the Job, which it starts without one.
//
// Cron starts the job for each time that Next has given it, in a goroutine that may come to Run late, or never, if a
// wrapper of the chain skips it. So Run takes, of the times that Next has given and that have come, the newest that no
// other Run has taken. As many goroutines get as many ticks, whichever is first; and what was skipped stays below what is
// new. Reading Entry.Prev or a clock instead would give two goroutines the same tick. Next may be called by anybody, with
// any time: what has not come is not taken, and of what has not come only the nearest is kept, which is the one that cron
// waits for.
type handover struct {
	cron.Schedule
	mu   sync.Mutex
	next time.Time   // the nearest that has not come
	due  []time.Time // that have come, in order
}

// Next is cron's: the next tick after t.
func (h *handover) Next(t time.Time) time.Time {
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

// take gives the tick of a goroutine that cron has started; false if there is none, because somebody else has called Run.
func (h *handover) take() (time.Time, bool) {
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

func (h *handover) comeLocked(now time.Time) {
	if !h.next.IsZero() && !h.next.After(now) { // as cron compares
		h.addLocked(h.next)
		h.next = time.Time{}
	}
}

func (h *handover) addLocked(tick time.Time) {
	i, found := slices.BinarySearchFunc(h.due, tick, time.Time.Compare)
	if found {
		return
	}
	h.due = slices.Insert(h.due, i, tick)
	if len(h.due) > maxDue {
		h.due = slices.Delete(h.due, 0, 1)
	}
}
