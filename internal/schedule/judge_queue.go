package schedule

import (
	"slices"
	"strconv"

	"github.com/holdfast-go/holdfast/internal/backend"
)

func (j *judge) enqueued(c *command, id string) {
	if j.ended[id] {
		fail("C", "%s enters the queue, and it has ended", id)
	}
	if j.now >= j.queueUntil {
		j.waiters = j.waiters[:0]
	}
	j.queueUntil = j.now + backend.QueueTTL.Microseconds()
	i := slices.IndexFunc(j.waiters, func(w waiter) bool { return w.id == id })
	if i < 0 {
		j.waiters = append(j.waiters, waiter{id: id, locker: c.locker, since: j.now, share: c.share, lastSent: j.now})
		return
	}
	w := &j.waiters[i]
	if w.lastSent = j.now; w.maybe {
		w.maybe, w.vague = false, true
	}
}

func (j *judge) forget(id string) {
	j.waiters = slices.DeleteFunc(j.waiters, func(w waiter) bool { return w.id == id })
}

// waiting returns the first member of the queue whose process listens. Without one its id is empty.
func (j *judge) waiting() waiter {
	for _, w := range j.waiters {
		if j.now < j.queueUntil && !w.maybe && j.listening(w.locker) {
			return w
		}
	}
	return waiter{}
}

// passed judges the notifications of a command that freed the key.
func (j *judge) passed(heard []string) {
	if rest := j.reserves(heard); len(rest) > 0 {
		fail("F", "the key is reserved for %s, and %v are notified too", j.reserved, rest)
	}
}

// reserves judges for which waiter a command reserved a free key, and returns the notifications
// that it sent after that.
func (j *judge) reserves(heard []string) (rest []string) {
	j.reserved, j.reservedUntil, j.coolUntil = "", 0, 0
	must := j.waiting()
	for i, h := range heard {
		id := h[1:]
		at := slices.IndexFunc(j.waiters, func(w waiter) bool { return w.id == id })
		if at < 0 {
			fail("F", "%s is notified, and it does not wait", id)
		}
		w := j.waiters[at]
		j.forget(id)
		if !j.cluster && !j.listening(w.locker) {
			continue
		}
		j.reserved, j.reservedUntil = id, j.now+backend.ReserveTime.Microseconds()
		if must = j.waiting(); must.id != "" && !must.vague && !w.vague && must.since < w.since {
			fail("F", "%s is notified before %s", id, must.id)
		}
		must, rest = waiter{}, heard[i+1:]
		break
	}
	if must.id != "" {
		fail("F", "the key is free, and the waiter %s is not notified", must.id)
	}
	for i := range j.waiters {
		if w := &j.waiters[i]; !j.listening(w.locker) {
			w.maybe = true
		}
	}
	return rest
}

// cools judges the notifications about the end of a cooldown. A release that starts the cooldown of
// the whole key tells the first waiter whose process listens.
func (j *judge) cools(c *command, r *reply, told []string) {
	alive := false
	for _, message := range told {
		id, end := message[1:27], j.now
		if in, err := strconv.ParseInt(message[27:], 10, 64); err == nil {
			end += in
		}
		of := j.phase != nil && slices.ContainsFunc(j.phase.shares, func(s share) bool { return s.cools && s.end == end })
		if !of && (j.phase != nil || end != j.coolUntil) {
			fail("F", "%v of %s tells %s that a cooldown ends at %d, and the key cools until %d with the shares %+v", c.op, c.id, id, end, j.coolUntil, j.phase)
		}
		at := slices.IndexFunc(j.waiters, func(w waiter) bool { return w.id == id })
		if at < 0 {
			fail("F", "%s is told of a cooldown, and it does not wait", id)
		}
		if w := &j.waiters[at]; j.listening(w.locker) {
			alive = true
		} else {
			w.maybe = true
		}
	}
	if must := j.waiting(); c.op == release && r.done && j.now < j.coolUntil && must.id != "" && !alive && !j.cluster {
		fail("F", "the key cools, and the waiter %s is not told", must.id)
	}
}
