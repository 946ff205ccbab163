package lockcore

import (
	"container/heap"
	"time"
)

const endsAtOnce = 100 // maximum number of waits that end while the mutex is locked

// waitEnds ends the waits of the calls in the queues of a shard, at the end of Wait and when the
// Locker is closed. The calls share one timer, because a timer for each of them would take as much
// memory as the call.
//
// The mutex of the shard guards all fields. A call is in ends while it is in the list of its queue,
// unless it waits forever. So there is no race of the end of a wait with a turn: the goroutine that
// removes the call from the list sends it its turn. The same mutex decides the race of a new call
// with Close. Either Close finds the call in the list, or the call finds closed.
type waitEnds struct {
	ends   dueHeap[*call]
	timer  *time.Timer   // runs end at next; without calls it fires at most once more
	next   time.Duration // no later than any end; 0: timer is not set
	closed bool          // no call may begin to wait
}

// scheduleLocked schedules the end of the wait of c. A call with NoWait waits for replyWait.
func (s *shard) scheduleLocked(c *call) {
	zero := c.l.watchdog.zero
	switch c.terms.Wait {
	case Forever:
		return
	case NoWait:
		c.due = time.Since(zero) + replyWait
	default:
		c.due = c.start.Sub(zero) + c.terms.Wait
	}
	heap.Push(&s.ends, c)
	s.setTimerLocked(zero)
}

func (s *shard) unscheduleLocked(c *call) {
	if c.index > 0 {
		heap.Remove(&s.ends, int(c.index-1))
	}
}

// setTimerLocked makes the timer fire at the first end or earlier.
func (s *shard) setTimerLocked(zero time.Time) {
	if len(s.ends) == 0 || s.next != 0 && s.next <= s.ends[0].due {
		return
	}
	s.next = s.ends[0].due
	if in := s.next - time.Since(zero); s.timer == nil {
		s.timer = time.AfterFunc(in, s.end)
	} else {
		s.timer.Reset(in)
	}
}

// end ends the waits that are over.
func (s *shard) end() {
	for more := true; more; {
		var over []turnOf
		over, more = s.takeOver()
		for _, o := range over {
			o.call.give(o.turn)
		}
	}
}

// turnOf is the turn of a call that was removed from its queue.
type turnOf struct {
	call *call
	turn turn
}

// takeOver removes calls whose waits are over from their queues, if the holder is known. Otherwise
// such a call waits for the next reply, at most replyWait, to report a useful error. more is true if
// there may be further ones; if not, takeOver has set the timer.
func (s *shard) takeOver() (over []turnOf, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = 0
	if len(s.ends) == 0 {
		return nil, false
	}
	zero := s.ends[0].l.watchdog.zero
	now := time.Since(zero)
	for n := 0; len(s.ends) > 0 && s.ends[0].due <= now; n++ {
		if n == endsAtOnce {
			return over, true
		}
		c := s.ends[0]
		q := c.queue
		if !q.canRefuseLocked(c) && (!c.overdue || c.crowded) {
			if !c.overdue {
				c.overdue = true
				q.overdue++
			}
			c.crowded = false // its wait has expired, so it no longer needs a place
			q.signalLeaderLocked(c)
			c.due = now + replyWait
			heap.Fix(&s.ends, 0)
			continue
		}
		snap := q.snapshotLocked()
		q.removeLocked(c)
		over = append(over, turnOf{c, turn{result: &result{refused: &snap}}})
	}
	s.setTimerLocked(zero)
	return over, false
}

// endWaits ends the waits of all calls, because the Locker is closed.
func (l *Locker) endWaits() {
	for i := range l.shards {
		s := &l.shards[i]
		var all []*call
		s.mu.Lock()
		s.closed = true
		for _, queues := range s.queues {
			for _, q := range queues {
				all = append(all, q.removeAllLocked(func(*call) bool { return true })...)
			}
		}
		s.mu.Unlock()
		for _, c := range all {
			c.give(turn{result: &result{err: ErrClosed}})
		}
	}
}
