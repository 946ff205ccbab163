package schedule

import (
	"reflect"
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
)

func (j *judge) revoked(c *command, r *reply, heard []string) {
	switch {
	case j.sharesLive():
		j.revokedShares(c, r, heard)
	case len(heard) == 0:
		if !r.done && j.live() || r.done && !slices.Contains(j.ran, c.id) {
			fail("D", "the revocation %s has no effect", c.id)
		}
	case !j.live() || heard[0] != "v"+j.hold.id:
		fail("D", "the revocation %s reaches %v, and %+v holds the key", c.id, heard, j.hold)
	case slices.Contains(j.closed, c.id):
		fail("D", "a late duplicate of %s revokes %s", c.id, j.hold.id)
	default:
		j.hold.revoked = true
	}
	j.ran = append(j.ran, c.id)
}

// cleared judges a clear by the states before and after it.
func (j *judge) cleared(now int64, c *command, r *reply, before, after backend.Status, heard []string) {
	j.now = now
	j.finished++
	if !r.done {
		if !j.live() && !j.sharesHeld() {
			fail("D", "%s does not clear the key, and no process holds it", c.id)
		}
		return
	}
	before.Remaining, before.KeepLeft, after.Remaining, after.KeepLeft = 0, 0, 0, 0
	acted := len(heard) > 0 || !reflect.DeepEqual(before, after)
	switch {
	case acted && j.live():
		fail("A", "%s clears the key, and %s holds it", c.id, j.hold.id)
	case acted && j.sharesHeld():
		fail("A", "%s clears the key, and it has the shares %+v", c.id, j.phase.shares)
	case acted && slices.Contains(j.closed, c.id):
		fail("D", "a late duplicate of %s clears the key", c.id)
	case !slices.Contains(j.ran, c.id) && (after.Died || after.State != backend.StateFree && after.State != backend.StateReserved):
		fail("D", "%s leaves the key %+v", c.id, after)
	}
	if acted || !slices.Contains(j.ran, c.id) {
		j.hold, j.phase, j.abandoned, j.record, j.attempts, j.anew = nil, nil, false, nil, 0, true
		j.keepsParked()
		if j.reserved == "" {
			j.passed(heard)
		}
	} else if !slices.Contains(j.closed, c.id) { // the first copy may have found nothing, and this one cleared the key; the state does not show that
		j.keptUntil, j.counted = now, now
	}
	j.ran = append(j.ran, c.id)
}

// inspected judges the state of the key.
func (j *judge) inspected(now int64, s backend.Status) {
	j.now = now
	if j.parked.expire(now); s.Parked != len(j.parked.entries) {
		fail("P", "%d entries are parked, want %d", s.Parked, len(j.parked.entries))
	}
	may, must := j.isAbandoned()
	want, locker := backend.StateFree, ""
	switch {
	case j.live():
		want, locker, may, must = backend.StateHeld, j.hold.locker, false, false
		if s.Revoked != j.hold.revoked {
			fail("D", "the hold of %s is revoked: %v, want %v", j.hold.id, s.Revoked, j.hold.revoked)
		}
	case j.sharesLive():
		want, may, must = backend.StateShared, false, false
		if weights := j.phase.weights(now); s.Weights != weights || s.Revoked != j.phase.revoked {
			fail("S", "the weights of the shares are %d, revoked %v, and the key has %+v", s.Weights, s.Revoked, j.phase)
		}
	case j.record != nil && now < j.record.until-1000:
		want = backend.StateDone
	case j.record != nil && now < j.record.until+1000:
		return
	case now < j.reservedUntil:
		want = backend.StateReserved
	case now < j.coolUntil:
		want = backend.StateCooling
	}
	abandoned := s.Died || s.State == backend.StateAbandoned
	switch {
	case abandoned && !may || !abandoned && must && s.State == backend.StateFree:
		fail("E", "the key is abandoned: %v, want %v", abandoned, must)
	case s.State != want && !abandoned:
		fail("D", "the key is %s, want %s", s.State, want)
	case want == backend.StateHeld && s.Locker != locker:
		fail("D", "%s holds the key, want %s", s.Locker, locker)
	case s.Queue > 0 && s.Token == 0 && j.token > 0:
		fail("F", "the key has a queue, and its last token is lost")
	case s.Queue < j.certain():
		fail("F", "%d wait, want %d", s.Queue, j.certain())
	}
}

// certain returns how many members the queue has at least.
func (j *judge) certain() (n int) {
	for _, w := range j.waiters {
		n += int(count(j.now < j.queueUntil && !w.maybe))
	}
	return n
}
