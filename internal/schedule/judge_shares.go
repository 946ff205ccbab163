package schedule

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	headSilent = 5e6         // µs, after which the server may drop the first waiter
	sharedKeep = 86400 * 1e6 // µs, for which the server keeps the data of a phase after its longest lease
)

// phase has the shares that the server must have.
type phase struct {
	id      string
	token   int64
	revoked bool
	shares  []share
}

type share struct {
	id     string
	weight int
	end    int64
	cools  bool // it was released
}

// share returns the share of a request, or nil.
func (p *phase) share(id string) *share {
	if p == nil {
		return nil
	}
	i := slices.IndexFunc(p.shares, func(s share) bool { return s.id == id && !s.cools })
	if i < 0 {
		return nil
	}
	return &p.shares[i]
}

// weights returns the sum of the weights at the time now.
func (p *phase) weights(now int64) (sum int) {
	for _, s := range p.shares {
		if s.end > now {
			sum += s.weight
		}
	}
	return sum
}

func (p *phase) end() (last int64) {
	for _, s := range p.shares {
		last = max(last, s.end)
	}
	return last
}

// firstEnd returns when the first share ends that has not ended at the time now.
func (p *phase) firstEnd(now int64) int64 {
	first := p.end()
	for _, s := range p.shares {
		if s.end > now {
			first = min(first, s.end)
		}
	}
	return first
}

// has reports whether the server has a hold or a share of id.
func (j *judge) has(id string) bool {
	s := j.phase.share(id)
	return j.holds(id) || s != nil && s.end > j.now
}

// sharesLive reports whether the key is shared.
func (j *judge) sharesLive() bool { return j.phase != nil && j.phase.end() > j.now }

// sharesHeld reports whether a share was not released.
func (j *judge) sharesHeld() bool {
	return j.phase != nil && slices.ContainsFunc(j.phase.shares, func(s share) bool { return !s.cools && s.end > j.now })
}

// sweep removes the shares that have expired, and reports whether that ends the phase.
func (j *judge) sweep() (closed bool) {
	if j.phase == nil {
		return false
	}
	j.phase.shares = slices.DeleteFunc(j.phase.shares, func(s share) bool { return s.end <= j.now })
	if closed = len(j.phase.shares) == 0; closed {
		j.phase = nil
	} else if !j.sharesHeld() {
		j.phase.revoked = false
	}
	return closed
}

// admit records a share, or its new end. A new share must fit.
func (j *judge) admit(id string, s backend.Share, end int64) {
	if own := j.phase.share(id); own != nil {
		own.end = max(own.end, end)
		return
	}
	if sum := j.phase.weights(j.now) + s.Weight; sum > s.Limit {
		fail("S", "%s is granted a share, and the weights are %d of %d", id, sum, s.Limit)
	}
	j.phase.shares = append(j.phase.shares, share{id: id, weight: s.Weight, end: end})
}

func (j *judge) acquiredShare(c *command, r *reply, heard []string) {
	if j.sweep() {
		heard = j.reserves(heard)
	}
	switch r.outcome {
	case backend.OutcomeGranted:
		j.says(c, r.parked)
		j.grantedShare(c, r, heard)
	case backend.OutcomeBusy:
		j.busyShare(c, r, heard)
	case backend.OutcomeEnded:
		if !j.ended[c.id] && (j.phase.share(c.id) == nil || !j.phase.revoked) {
			fail("C", "%s is refused as ended, and it is not", c.id)
		}
		j.quiet(c, heard)
	default:
		fail("C", "%s gets outcome %v", c.id, r.outcome)
	}
}

func (j *judge) grantedShare(c *command, r *reply, heard []string) {
	own := j.phase.share(c.id) != nil
	switch {
	case j.ended[c.id]:
		fail("C", "%s is granted a share, and it has ended", c.id)
	case j.phase == nil:
		j.opened(c, r)
		j.serves(heard)
	case j.phase.revoked:
		fail("A", "%s is granted a share, and the shares of the key are revoked", c.id)
	default:
		j.serves(heard)
		if w := j.waiting(); !own && j.phase.share(c.id) == nil && w.id != "" && w.id != c.id && j.awake(&w) {
			fail("F", "%s is granted a share before the waiter %s", c.id, w.id)
		}
		j.admit(c.id, c.share, j.now+c.lease)
		j.forget(c.id)
	}
	if r.token != j.phase.token || r.phase != j.phase.id {
		fail("B", "%s gets token %d and phase %s, and the phase is %+v", c.id, r.token, r.phase, j.phase)
	}
	j.keptUntil = max(j.keptUntil, j.now+c.lease+sharedKeep)
}

// opened judges the first share of a phase.
func (j *judge) opened(c *command, r *reply) {
	may, must := j.isAbandoned()
	switch {
	case j.live():
		fail("A", "%s is granted a share, and %s holds the key", c.id, j.hold.id)
	case j.now < j.reservedUntil && j.reserved != c.id:
		fail("F", "%s is granted a share, and the key is reserved for %s", c.id, j.reserved)
	case j.now < j.coolUntil:
		fail("F", "%s is granted a share, and the key is cooling", c.id)
	case r.token <= j.token:
		fail("B", "%s opens a phase with token %d after %d", c.id, r.token, j.token)
	case r.abandoned && !may || !r.abandoned && must:
		fail("E", "%s is granted a share with abandoned %v", c.id, r.abandoned)
	}
	j.phase = &phase{id: c.id, token: r.token}
	j.hold, j.abandoned, j.keptUntil, j.token = nil, r.abandoned, j.now+c.lease+sharedKeep, r.token
	j.reserved, j.reservedUntil, j.coolUntil = "", 0, 0
	j.admit(c.id, c.share, j.now+c.lease)
	j.forget(c.id)
}

func (j *judge) busyShare(c *command, r *reply, heard []string) {
	until := int64(0)
	switch {
	case j.live():
		until = j.hold.end
	case j.phase != nil:
		if j.phase.share(c.id) != nil {
			fail("A", "%s is busy by itself", c.id)
		}
		if !j.phase.revoked {
			j.serves(heard)
			others := slices.ContainsFunc(j.waiters, func(w waiter) bool { return w.id != c.id })
			if j.phase.weights(j.now)+c.share.Weight <= c.share.Limit && !others {
				fail("F", "%s is busy, and its share fits beside %+v", c.id, j.phase.shares)
			}
			heard = nil
		}
		until = j.phase.firstEnd(j.now)
	case j.now < j.reservedUntil && j.reserved != c.id:
		until = j.reservedUntil
	case j.now < j.coolUntil:
		until = j.coolUntil
	default:
		fail("F", "%s is busy, and no process has the key", c.id)
	}
	if r.remaining != until-j.now {
		fail("F", "%s is busy for %d µs, want %d", c.id, r.remaining, until-j.now)
	}
	if j.phase == nil || j.phase.revoked {
		j.quiet(c, heard)
	}
	if c.queue {
		j.enqueued(c, c.id)
	}
}

func (j *judge) renewedShare(c *command, r *reply) {
	want, s := backend.VerdictLost, j.phase.share(c.id)
	if s != nil && s.end > j.now {
		if want = backend.VerdictKept; j.phase.revoked {
			want = backend.VerdictRevoked
		}
	}
	if r.verdict != want {
		fail("A", "the renewal of the share %s returns %d, want %d", c.id, r.verdict, want)
	}
	if want == backend.VerdictKept {
		s.end = max(s.end, j.now+c.lease)
	}
}

// releasedShare judges the end of a share, or the withdrawal of a request for one.
func (j *judge) releasedShare(c *command, r *reply, heard []string) {
	closed := j.sweep()
	if c.locker != "" {
		j.forget(c.id)
	}
	own, reserved := j.phase.share(c.id), j.reserved == c.id && j.hold == nil && j.phase == nil
	if r.done && own == nil && !reserved || !r.done && (own != nil || reserved && j.now < j.reservedUntil) {
		fail("D", "the end of the share %s takes effect: %v, and the key has %+v", c.id, r.done, j.phase)
	}
	j.ended[c.id] = true
	if own != nil {
		if own.cools, own.end = true, j.now+c.cooldown; j.sweep() {
			j.passed(heard)
			return
		}
	}
	if reserved && r.done {
		j.passed(heard)
		return
	}
	j.leftShared(c, closed, heard)
}

// leftShared judges the notifications of a command that ended no hold and no phase. It may have
// removed shares that expired, or a waiter.
func (j *judge) leftShared(c *command, closed bool, heard []string) {
	switch {
	case closed:
		j.passed(heard)
	case j.phase != nil && !j.phase.revoked:
		j.serves(heard)
	default:
		j.quiet(c, heard)
	}
}

// quiet judges that a command notified no process.
func (j *judge) quiet(c *command, heard []string) {
	if len(heard) > 0 {
		fail("F", "%v of %s notifies %v", c.op, c.id, heard)
	}
}

// awake reports whether the server must not drop the waiter as the first of the queue.
func (j *judge) awake(w *waiter) bool { return j.now-w.lastSent <= headSilent }

// serves judges the notifications of a command on a shared key, which granted shares to waiters.
func (j *judge) serves(heard []string) {
	for _, h := range heard {
		at := slices.IndexFunc(j.waiters, func(w waiter) bool { return w.id == h[1:] })
		if at < 0 {
			fail("F", "%s is notified, and it does not wait", h[1:])
		}
		w := j.waiters[at]
		if w.share.Limit == 0 {
			fail("A", "%s is notified, and the key has the shares %+v", w.id, j.phase.shares)
		}
		j.forget(w.id)
		if first := j.waiting(); first.id != "" && !first.vague && !w.vague && first.since < w.since && j.awake(&first) {
			fail("F", "%s is granted a share before the waiter %s", w.id, first.id)
		}
		if j.cluster || j.listening(w.locker) {
			j.admit(w.id, w.share, j.now+backend.ReserveTime.Microseconds())
			j.keptUntil = max(j.keptUntil, j.now+sharedKeep)
		}
	}
	first := j.waiting()
	behind := slices.ContainsFunc(j.waiters, func(w waiter) bool {
		return w.id != first.id && (w.vague || w.maybe || w.since <= first.since)
	})
	if first.share.Limit > 0 && !first.vague && !behind && j.phase.weights(j.now)+first.share.Weight <= first.share.Limit {
		fail("F", "the waiter %s is not granted a share, which fits beside %+v", first.id, j.phase.shares)
	}
	for i := range j.waiters {
		if w := &j.waiters[i]; !j.awake(w) {
			w.maybe = true
		}
	}
}

// revokedShares judges a revocation of a shared key.
func (j *judge) revokedShares(c *command, r *reply, heard []string) {
	ran := slices.Contains(j.ran, c.id)
	switch {
	case len(heard) == 0 && (ran || !j.sharesHeld()):
		if r.done != ran {
			fail("D", "the revocation %s takes effect: %v, and no share is held", c.id, r.done)
		}
		return
	case !r.done:
		fail("D", "the revocation %s has no effect", c.id)
	case slices.Contains(j.closed, c.id):
		fail("D", "a late duplicate of %s revokes %+v", c.id, j.phase.shares)
	}
	for _, s := range j.phase.shares {
		if !s.cools && s.end > j.now && !slices.Contains(heard, "v"+s.id) {
			fail("D", "the revocation %s does not reach %s", c.id, s.id)
		}
	}
	for _, h := range heard {
		if j.phase.share(h[1:]) == nil {
			fail("D", "the revocation %s reaches %s, which has no share", c.id, h[1:])
		}
	}
	j.phase.revoked = true
}
