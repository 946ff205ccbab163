package lockcore

import (
	"context"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	batchTime    = 5 * time.Millisecond   // a batch has no further hand-off this long after its grant
	publishAfter = 250 * time.Millisecond // after a hand-off, the watchdog publishes the new holder in Redis this much later
)

// grant is a lease and a block of fencing tokens from Redis. Holds of one process follow each other
// under it, each with its own token. Such a batch ends after backend.TokensPerGrant holds or after
// batchTime, whichever is first.
//
// mu decides every race between renewal, loss, re-entry, release and hand-off. hold is the current
// hold, nil during a hand-off. The first goroutine that sets cause or clears hold wins. While mu is
// locked, no code sends a Redis command, calls the Observer or locks another mutex.
//
// A program may hold many keys, so the fields are in the order in which a grant takes 480 bytes.
type grant struct {
	l           *Locker
	queue       *keyQueue
	id          string
	leaseTerm   time.Duration // Terms.Lease of every hold
	keep        time.Duration
	fingerprint string
	since       time.Time
	granted     int64  // time in µs by the backend's clock
	firstToken  int64  // first of the block, or the token of a share
	share       *share // nil: the key alone
	attempt     int32
	handOffs    int16 // guarded by the mutex of the queue
	holds       int16 // number of holds that have begun, at most backend.TokensPerGrant; guarded by mu
	fixed       bool  // not renewed
	atMostOnce  bool  // of the claim
	repeated    bool  // the acquire was sent more than once: a late duplicate may exist
	plain       bool  // the backend stored no other data for the key, see backend.ReleaseRequest.Plain
	abandoned   bool  // guarded by mu: the previous hold was abandoned, and no hold has begun since

	// Guarded by watchdog.mu.
	urgent    bool  // due for a reason that is newer than the renewals in flight
	renewing  uint8 // renewals in flight
	scheduled       // for the next renewal

	mu          sync.Mutex
	hold        *hold
	sent        time.Time     // when the command was sent that determines the end of the lease: the acquire or a renewal
	lease       time.Duration // that this command requested
	cause       error         // why the lease ended
	requestedBy *call         // the call whose holder text the acquire stored; nil if another call's text may be stored, or after the first hold began
	published   *hold         // the hold whose holder text Redis has
	timer       *time.Timer   // cancels the ctx of the hold before the lease can end; set with the first hold

	older, younger *grant // see ageList; guarded by Locker.mu

	first hold // most grants have one hold
}

// tokenLocked returns the token of the hold that follows n others. All holds of a share have the
// token of the share.
func (g *grant) tokenLocked(n int16) int64 {
	if g.share != nil {
		return g.firstToken
	}
	return g.firstToken + int64(n)
}

// name returns the id that [Hold.ID] is made from: that of the grant, or for a share that of its
// phase.
func (g *grant) name() *string {
	if g.share != nil {
		return &g.share.phase
	}
	return &g.id
}

// shareOf returns the share that g was requested for, or the zero value for the key alone.
func (g *grant) shareOf() backend.Share {
	if g.share == nil {
		return backend.Share{}
	}
	return g.share.Share
}

// isFor reports whether g is what a call with n requests: the key alone, or a share with the same
// limit, weight and rate. A share that a rate let begin, that of its call or of a restriction, is for no
// other call.
func (g *grant) isFor(n Limit) bool {
	if g.share == nil {
		return n == Limit{}
	}
	return !g.share.rated && g.share.Share == n.share() //planted:permit-with-rate
}

// needsMore reports whether a nested call for s requests more than g has. Such a call is refused:
// two calls that both hold a share and wait for more would wait for each other.
func (g *grant) needsMore(s backend.Share) bool {
	return g.share != nil && (s.Limit == 0 || s.Limit < g.share.Limit || s.Weight > g.share.Weight)
}

// leftLocked returns for how long the lease is certainly valid. It is negative after that.
func (g *grant) leftLocked(now time.Time) time.Duration {
	return usable(g.lease) - between(g.sent, now)
}

// startHold starts the hold of c. If the lease has ended, it returns nil and changes nothing.
func (g *grant) startHold(c *call) *hold {
	h, same := g.tryStartHold(c)
	if !same {
		g.l.watchdog.publishSoon(g)
	}
	return h
}

// tryStartHold is startHold without publishing. same is false if Redis has the holder text of
// another call.
func (g *grant) tryStartHold(c *call) (h *hold, same bool) {
	ctx, cancel := context.WithCancelCause(c.ctx) // not under mu: WithCancelCause may call Value of a nested run's ctx, which locks the mu of another grant
	defer func() {
		if h == nil {
			cancel(nil)
		}
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	left := g.leftLocked(now)
	if g.cause != nil || left <= 0 { //planted:hold-of-live-grant
		return nil, true
	}
	first := g.holds == 0
	h, same = &g.first, !first || g.requestedBy == c
	if !first {
		h = new(hold)
	}
	h.grant, h.maxHold, h.of, h.callCtx, h.abandoned = g, c.terms.MaxHold, h, c.ctx, g.abandoned
	h.name, h.limit = c.terms.Name, c.limit.N
	h.token = g.tokenLocked(g.holds) //planted:token-of-hold
	h.began, h.runs = now.Sub(g.since), 1
	h.minHold, h.stall, h.lastBeat = c.terms.MinHold, c.terms.Stall, between(g.since, now)
	h.Context, h.cancel = ctx, cancel
	if g.l.observer != nil {
		h.events = new(eventLog)
	}
	g.hold, g.abandoned = h, false
	if first && same {
		g.published = h
	}
	g.requestedBy = nil
	g.holds++
	left = min(left, h.leftLocked(now))
	switch {
	case first:
		//planted:local-timer
		g.timer = time.AfterFunc(left, g.expire) // expire locks mu, so it cannot run before the field is set
	case h.maxHold > 0 || h.stall > 0:
		g.timer.Reset(left)
	}
	return h, same
}

// expire runs when the timer fires. If a renewal or a hand-off has moved the end of the lease
// meanwhile, expire only sets the timer again.
func (g *grant) expire() {
	g.mu.Lock()
	now := time.Now()
	h, left := g.hold, g.leftLocked(now)
	if h != nil {
		left = h.leftLocked(now)
	}
	if left > 0 {
		if g.cause == nil {
			g.timer.Reset(left)
		}
		g.mu.Unlock()
		return
	}
	cause := ErrLost
	switch {
	case h == nil:
	case h.maxHold > 0 && between(h.grantedAt(), now) >= h.maxHold:
		cause = ErrMaxHold
	case h.stall > 0 && h.sinceBeatLocked(now) >= h.stall:
		cause = ErrStalled
	}
	lost := g.loseLocked(cause)
	g.mu.Unlock()
	if lost {
		g.afterLoss(h, cause)
	}
}

// lose ends the lease before its hold: it cancels the ctx, stops the renewals and takes the
// leadership from the hold. Only the first cause is kept. During a hand-off there is no hold to
// cancel, and the next hold fails to start.
func (g *grant) lose(cause error) { g.loseUnder(nil, cause) }

// loseUnder is lose if only is nil or is the current hold. Otherwise it does nothing.
func (g *grant) loseUnder(only *hold, cause error) {
	g.mu.Lock()
	h := g.hold
	lost := (only == nil || h == only) && g.loseLocked(cause)
	g.mu.Unlock()
	if lost {
		g.afterLoss(h, cause)
	}
}

// loseLocked marks the lease as ended. It returns false if the lease had already ended. If it
// returns true, the caller must call afterLoss.
func (g *grant) loseLocked(cause error) bool {
	if g.cause != nil {
		return false
	}
	g.cause = cause
	if h := g.hold; h != nil {
		h.lost = true
		h.lostAt = elapsed(g.since)
		g.timer.Stop()
	}
	return true
}

// afterLoss finishes the loss of the lease under h, which is nil during a hand-off. It cancels the
// ctx first, so that no other mutex delays that.
func (g *grant) afterLoss(h *hold, cause error) {
	if h != nil {
		h.cancel(cause)
	}
	g.l.watchdog.remove(g)
	g.l.mu.Lock()
	g.l.byAge.removeLocked(g) // the lease can no longer be revoked, so a handler that hangs must not keep the subscription open
	g.l.mu.Unlock()
	if h != nil {
		h.cancelNested(cause) //planted:nested-loss
		if g.share != nil {
			g.queue.closeShare(g.share)
		}
		g.queue.loseGrant(g)
		h.emit(event.Lost{Cause: cause})
	}
}

// renewed records a successful renewal, and the hold that it published, if any. A renewal that
// would shorten the lease does not change its end.
func (g *grant) renewed(sent time.Time, lease time.Duration, known *hold) {
	if g.share != nil {
		g.share.extended(sent.Add(lease))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if known != nil {
		g.published = known
	}
	if g.hold != nil {
		g.hold.renewals++
		g.hold.failing = false
	}
	now := time.Now()
	if g.cause != nil || usable(lease)-between(sent, now) <= g.leftLocked(now) {
		return
	}
	g.sent, g.lease = sent, lease
	if g.hold != nil {
		g.timer.Reset(g.hold.leftLocked(now))
	}
}

// countNoReply counts a renewal that got no reply. The lease is not lost yet, because its timer
// decides that. If a later renewal has succeeded, countNoReply emits no event.
func (g *grant) countNoReply(sent time.Time, err error) {
	g.mu.Lock()
	h := g.hold
	first := h != nil && !h.failing && !g.sent.After(sent)
	if h != nil {
		h.failing = h.failing || first
		h.failures++
	}
	g.mu.Unlock()
	if first {
		h.emit(event.RenewFailed{Err: err})
	}
}

// renewedSince reports whether a renewal that was sent after the time sent has succeeded.
func (g *grant) renewedSince(sent time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent.After(sent)
}

// holder returns the current hold, or nil.
func (g *grant) holder() *hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hold
}

// live reports whether the grant has no cause: it was neither lost nor closed.
func (g *grant) live() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause == nil
}

// canHandTo reports whether the hold of c can follow under g. The key must be exclusive, and c must
// request the same lease or share. The lease must be neither extended nor lost, and a token must be
// left. A fixed lease is handed only to the call whose holder text Redis already has, because no
// renewal would publish another one.
func (g *grant) canHandTo(c *call, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.queue.key.Kind == backend.KindExclusive && g.holds < backend.TokensPerGrant && g.isFor(c.limit) &&
		g.cause == nil && //planted:hand-off-of-live-grant
		g.lease == c.terms.Lease && //planted:hand-off-of-same-lease
		g.fixed == c.fixed && (!g.fixed || g.requestedBy == c) && g.leftLocked(now) > 0
}

// lastHold returns the greatest token used and the number of holds.
func (g *grant) lastHold() (token int64, holds int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.tokenLocked(g.holds - 1), int(g.holds)
}

// retention returns the TTL of the data of the key while it is held: the lease, and the time for
// which an abandoned hold is remembered.
func (g *grant) retention(lease time.Duration) time.Duration {
	return lease + markFor(g.keep, g.atMostOnce)
}

// renewRequest returns a renewal. It also publishes the current hold if the backend has the holder
// text of an earlier one. known is the hold whose holder text the backend has after the renewal.
func (g *grant) renewRequest() (r backend.RenewRequest, known *hold) {
	r = backend.RenewRequest{Key: &g.queue.key, ID: g.id, Lease: g.leaseTerm, Retention: g.retention(g.leaseTerm), Share: g.shareOf()}
	if g.fixed {
		r.Lease = 0 // only read the state
	}
	g.mu.Lock()
	h, known := g.hold, g.published
	g.mu.Unlock()
	if h == nil || h == known {
		return r, nil // the holder text may be another one when the reply arrives, see Ticket
	}
	r.Token, r.Holder = h.token, g.l.storedHolder(h.callCtx, g.fixed)
	return r, h
}

// busy returns the error that describes the holder to a call of this process.
func (g *grant) busy(c *call, queue int) *BusyError {
	g.mu.Lock()
	h, left := g.hold, g.lease-elapsed(g.sent)
	g.mu.Unlock()
	b := &BusyError{Key: c.key, Remaining: max(left, 0), Queue: queue, Waited: c.waited(), Local: true}
	by := context.Background()
	if h != nil {
		b.HeldFor, by = time.Since(h.grantedAt()), h.callCtx
	}
	b.Holder = holderOf(g.l.id, g.l.holderText(by))
	return b
}

// close ends the grant without a loss: no hold starts, and no renewal is sent.
func (g *grant) close() {
	g.mu.Lock()
	if g.cause == nil {
		g.cause = ErrReleased
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.l.watchdog.remove(g)
}

// serverEnd returns the earliest time at which the lease can end on the server. For a share it
// includes the extensions by other grants of the share.
func (g *grant) serverEnd() time.Time {
	g.mu.Lock()
	end := g.sent.Add(g.lease)
	g.mu.Unlock()
	if s := g.share; s != nil {
		if last := s.sent.Add(time.Duration(s.extent.Load())); last.After(end) {
			return last
		}
	}
	return end
}
