package schedule

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// ends judges whether a command ended the hold of its id, and records that it has ended.
func (j *judge) ends(c *command, effect bool) {
	own := j.hold != nil && j.hold.id == c.id
	if effect && !own {
		fail("D", "%v of %s takes effect, and it has no hold", c.op, c.id)
	}
	if !effect && own && j.now < j.keptUntil {
		fail("D", "%v of %s has no effect on its hold", c.op, c.id)
	}
	if own {
		j.hold = nil
	}
	j.ended[c.id] = true
}

func (j *judge) released(c *command, r *reply, heard []string) {
	j.ends(c, r.done)
	if !r.done {
		return
	}
	j.counted = j.now + c.keep
	if j.abandoned = c.abandon; c.abandon {
		j.keptUntil = j.now + c.keep
	}
	if c.cooldown > 0 && !c.abandon {
		j.coolUntil = j.now + c.cooldown
		j.frees(c, r)
		return
	}
	j.passed(heard)
	j.frees(c, r)
}

func (j *judge) rotated(c *command, r *reply, heard []string) {
	j.ends(c, r.done)
	if r.done {
		j.abandoned = false
		if j.passed(heard); r.outcome == backend.OutcomeGranted && j.reserved == "" && j.waiting().id != "" {
			fail("F", "%s is granted before the waiter %s of another process", c.next, j.waiting().id)
		}
		j.keepsParked()
	} else if r.outcome == backend.OutcomeGranted && !j.holds(c.next) {
		fail("A", "a repeated rotation grants the key to %s", c.next)
	}
	j.acquired(c, c.next, r)
}

func (j *judge) left(c *command, r *reply, heard []string) {
	j.forget(c.id)
	reserved := j.reserved == c.id
	if r.done && !j.abandoned {
		j.counted = j.now + c.keep
	}
	if r.done && reserved && j.hold == nil {
		j.ended[c.id] = true
		j.leftFree(c, heard)
		return
	}
	if j.ends(c, r.done); r.done {
		j.attempts--
		j.leftFree(c, heard)
		return
	}
	j.leftShared(c, j.sweep(), heard)
}

// leftFree judges the notifications of a withdrawal that freed the key.
func (j *judge) leftFree(c *command, heard []string) {
	turns := slices.DeleteFunc(slices.Clone(heard), func(h string) bool { return h[0] == 'p' })
	j.passed(turns)
	if wakes := len(turns) < len(heard); j.reserved == "" {
		j.says(c, wakes)
	} else if wakes {
		fail("P", "the withdrawal of %s wakes parked entries, and the key is reserved", c.id)
	}
	j.keepsParked()
}

func (j *judge) completed(c *command, r *reply, heard []string) {
	if j.record != nil && j.record.id == c.id && (r.done || j.now < j.record.until-1000) {
		if !r.done {
			fail("D", "the repeated completion of %s is refused", c.id)
		}
		j.says(c, r.parked)
		return
	}
	if j.ends(c, r.done); !r.done {
		return
	}
	if j.record != nil && j.now < j.record.until-1000 {
		fail("G", "%s replaces the record of %s", c.id, j.record.id)
	}
	j.attempts, j.anew = 0, true
	j.record, j.abandoned = &record{id: c.id, data: c.record, until: j.now + c.keep}, false
	for _, w := range j.waiters {
		if j.now < j.queueUntil && !w.maybe && !slices.Contains(heard, "w"+w.id) {
			fail("F", "the waiter %s is not notified of the record", w.id)
		}
	}
	j.waiters = j.waiters[:0]
	j.frees(c, r)
}
