package schedule

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// adopts judges an adoption: of a live hold, by one process, with a greater token.
func (j *judge) adopts(c *command, r *reply) {
	want := backend.VerdictLost
	mine := j.holds(c.id)
	if (mine || j.holds(c.from)) && !j.ended[c.id] {
		if want = backend.VerdictKept; j.hold.revoked {
			want = backend.VerdictRevoked
		}
	}
	switch {
	case r.verdict != want:
		fail("T", "the adoption of %s by %s returns %d, want %d", c.from, c.id, r.verdict, want)
	case want != backend.VerdictKept:
		return
	case mine && (r.token < j.hold.token || r.token >= j.hold.token+backend.TokensPerGrant):
		fail("B", "a repeated adoption by %s gets token %d after %d", c.id, r.token, j.hold.token)
	case !mine && (r.token <= j.token || r.token < j.hold.token+backend.TokensPerGrant):
		fail("B", "the adoption by %s gets token %d after %d", c.id, r.token, j.token)
	case r.abandoned != j.abandoned || j.once && r.attempt != j.attempts || !j.once && r.attempt != 1:
		fail("E", "%s adopts run %d, abandoned %v, want run %d", c.id, r.attempt, r.abandoned, j.attempts)
	}
	j.says(c, r.parked)
	if mine { // a repeat does not change the retention
		j.hold.end = max(j.hold.end, j.now+c.lease)
		return
	}
	j.keeps(c.retention)
	j.finished++ // the key remembers the id
	j.ended[c.from] = true
	j.hold = &held{
		id: c.id, locker: c.locker, token: r.token, end: j.now + c.lease, before: append(slices.Clone(j.hold.before), c.from), answer: j.hold.answer,
	}
	j.token, j.keptUntil, j.counted = r.token, j.now+c.retention, j.now+c.retention
}

// answers judges an interim answer: only its own run accepts it. After a record or a clear the runs
// are counted from 1 again. So a late answer may be stored in another run with the same number.
func (j *judge) answers(c *command, r *reply) {
	own := j.live() && (j.hold.id == c.id || slices.Contains(j.hold.before, c.id))
	if r.done && !own && !(j.live() && j.anew && j.ended[c.id] && c.attempt == j.attempts) {
		fail("T", "the interim answer of %s is stored, and the key has %+v", c.id, j.hold)
	}
	if !r.done && own && c.attempt == j.attempts && j.finished-c.finished < endedIDs-1 { // a late duplicate may have begun another run
		fail("T", "the interim answer of %s is not stored", c.id)
	}
	if r.done {
		j.hold.answer = c.record
	}
}
