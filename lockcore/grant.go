package lockcore

import (
	"context"
	"strconv"
	"sync"
	"time"
)

const (
	tokenBlock   = 512                    // as in lease.lua: tokens of one grant, so tenures of one streak
	streakTime   = 5 * time.Millisecond   // after it a streak ends with the tenure that runs
	introduction = 250 * time.Millisecond // after a hand-over Redis learns who holds the key, if the tenure is that long
)

// grant is what Redis gives: a hold-id with a lease and a block of tokens. Tenures of one process follow each other under
// it, each with a token of its own; a streak of them ends after tokenBlock tenures or streakTime, whichever is first.
//
// mu decides every race between renewal, loss, re-entry, release and hand-over. Under it h is the tenure that runs, nil while the
// grant is on its way from one to the next; whoever sets cause, or takes h away, has won. No Redis call, no Observer call and
// no other lock is taken under it.
type grant struct {
	l        *Locker
	line     *line
	id       string
	terms    granted // of every tenure
	keep     time.Duration
	tag      string
	since    time.Time
	top      int64 // last token of the block
	attempt  int32
	handed   int32 // times, guarded by the line's lock
	repeated bool  // its acquire was sent more than once: a copy may come late

	mu        sync.Mutex
	abandoned bool // a hold before was, and no tenure has begun since
	h         *hold
	next      int64         // token of the next tenure
	sent      time.Time     // when the acquire or renewal was sent that counts
	lease     time.Duration // and what it asked for
	cause     error         // why it ended
	by        *call         // of whom Redis was told with the acquire, nil if of another or once a tenure has begun
	known     *hold         // of whom it was told since
	timer     *time.Timer   // cancels the tenure before the lease can end; from the first tenure on

	// Guarded by watchdog.mu.
	due   time.Duration // of the next renewal, by the watchdog's clock
	index int32         // in the watchdog's heap, -1 when it is not in it
	tries uint8         // renewals under way
	poked bool          // due for a reason newer than the renewals under way

	older, younger *grant // see aged, guarded by Locker.mu

	first hold // most grants have no other
}

// granted are the terms that the server knows of.
type granted struct {
	Lease   time.Duration
	NoRenew bool
}

// tenuresLocked is how many have begun.
func (g *grant) tenuresLocked() int { return int(g.next-g.top) + tokenBlock - 1 }

// leftLocked is how long the lease may be relied on, on what is known now.
func (g *grant) leftLocked(now time.Time) time.Duration {
	return usable(g.lease) - between(g.sent, now)
}

// begin starts the tenure of c, unless the lease is over: then it returns nil and nothing has changed.
func (g *grant) begin(c *call) *hold {
	h, same := g.start(c)
	if !same {
		g.l.dog.introduce(g)
	}
	return h
}

// start is begin; same is false if Redis knows another call as the first that has the key.
func (g *grant) start(c *call) (h *hold, same bool) {
	ctx, cancel := context.WithCancelCause(c.ctx) // not under mu: it may call Value of a nested run's ctx, which takes a mu
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
	first := g.tenuresLocked() == 0
	h, same = &g.first, !first || g.by == c
	if !first {
		h = new(hold)
	}
	h.g, h.maxHold, h.of, h.asked, h.abandoned = g, c.terms.MaxHold, h, c.ctx, g.abandoned
	h.token = g.next //planted:token-of-hold
	h.began, h.runs = now.Sub(g.since), 1
	h.minHold, h.stall, h.beaten = c.terms.MinHold, c.terms.Stall, between(g.since, now)
	h.Context, h.cancel = ctx, cancel
	if g.l.obs != nil {
		h.told = new(told)
	}
	g.h, g.abandoned = h, false
	if first && same {
		g.known = h
	}
	g.by = nil
	g.next++
	left = min(left, h.leftLocked(now))
	switch {
	case first:
		//planted:local-timer
		g.timer = time.AfterFunc(left, g.expire) // the lock keeps it from firing before it is in its field
	case h.maxHold > 0 || h.stall > 0:
		g.timer.Reset(left)
	}
	return h, same
}

// expire runs when the timer fires. A renewal or hand-over that moved the end while it fired wins: then the timer is set again.
func (g *grant) expire() {
	g.mu.Lock()
	now := time.Now()
	h, left := g.h, g.leftLocked(now)
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
	case h.maxHold > 0 && between(h.granted(), now) >= h.maxHold:
		cause = ErrMaxHold
	case h.stall > 0 && h.silentLocked(now) >= h.stall:
		cause = ErrStalled
	}
	lost := g.loseLocked(cause)
	g.mu.Unlock()
	if lost {
		g.ended(h, cause)
	}
}

// lose ends the lease before its tenure: ctx is canceled, nothing is renewed any more, and the line goes on without it. The first cause
// stays. On its way to the next tenure the grant is only marked; whoever gets it finds out.
func (g *grant) lose(cause error) { g.loseUnder(nil, cause) }

// loseUnder is lose, unless the tenure is no longer that of only.
func (g *grant) loseUnder(only *hold, cause error) {
	g.mu.Lock()
	h := g.h
	lost := (only == nil || h == only) && g.loseLocked(cause)
	g.mu.Unlock()
	if lost {
		g.ended(h, cause)
	}
}

// loseLocked decides that the lease has ended, unless something else did before. If it returns true, the caller calls
// ended.
func (g *grant) loseLocked(cause error) bool {
	if g.cause != nil {
		return false
	}
	g.cause = cause
	if h := g.h; h != nil {
		h.lost = true
		if h.told != nil {
			h.told.lostAt = time.Now()
		}
		g.timer.Stop()
	}
	return true
}

// ended does what follows from the loss of the lease under h, which is nil between two tenures. It cancels the ctx
// first: no other lock may delay that.
func (g *grant) ended(h *hold, cause error) {
	if h != nil {
		h.cancel(cause)
	}
	g.l.dog.remove(g)
	g.l.mu.Lock()
	g.l.aged.removeLocked(g) // nothing is left to revoke, so a handler that hangs does not keep the subscription open
	g.l.mu.Unlock()
	if h != nil {
		h.dismiss(cause) //planted:nested-loss
		g.line.lost(g)
		h.tell(Lost{Cause: cause})
	}
}

// renewed takes the answer "kept" to a renewal into account, and of whom it has told Redis, if not nil. One that was sent too long ago
// does not move the end.
func (g *grant) renewed(sent time.Time, lease time.Duration, known *hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known != nil {
		g.known = known
	}
	if g.h != nil {
		g.h.renewals++
		g.h.failing = false
	}
	now := time.Now()
	if g.cause != nil || usable(lease)-between(sent, now) <= g.leftLocked(now) {
		return
	}
	g.sent, g.lease = sent, lease
	if g.h != nil {
		g.timer.Reset(g.h.leftLocked(now))
	}
}

// unanswered counts a renewal without a reply. The lease is not lost yet: its timer decides. If a later renewal has
// succeeded, there is nothing to report.
func (g *grant) unanswered(sent time.Time, err error) {
	g.mu.Lock()
	h := g.h
	first := h != nil && !h.failing && !g.sent.After(sent)
	if h != nil {
		h.failing = h.failing || first
		h.failures++
	}
	g.mu.Unlock()
	if first {
		h.tell(RenewFailed{Err: err})
	}
}

// renewedSince reports whether a renewal that was sent later has succeeded.
func (g *grant) renewedSince(sent time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent.After(sent)
}

// holder is the tenure that runs now, or nil.
func (g *grant) holder() *hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.h
}

// live says that the lease has not ended early.
func (g *grant) live() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cause == nil
}

// fits says whether the tenure of c can follow under g: with the lease that it wants, neither extended nor used up, on a key that knows no
// outcomes. A fixed lease is not handed over: nothing would tell Redis who has it then.
func (g *grant) fits(c *call, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.line.kind == KindExclusive && g.next <= g.top &&
		g.cause == nil && //planted:hand-off-of-live-grant
		g.lease == c.terms.Lease && //planted:hand-off-of-same-lease
		g.terms.NoRenew == c.terms.NoRenew && (!g.terms.NoRenew || g.by == c) && g.leftLocked(now) > 0
}

// last is the greatest token used, and how many tenures there were.
func (g *grant) last() (token int64, tenures int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.next - 1, g.tenuresLocked()
}

// retention is the TTL of the hash while it is held: what is left of it after an abandoned lease.
func (g *grant) retention(lease time.Duration) int64 {
	return millis(lease + max(g.keep, abandonedTTL))
}

// news is what Redis should be told of the tenure that runs, if it has not been: its token, and who.
func (g *grant) news() (*hold, string) {
	g.mu.Lock()
	h, known := g.h, g.known
	g.mu.Unlock()
	if h == nil || h == known {
		return known, ""
	}
	return h, strconv.FormatInt(h.token, 10) + " " + g.l.who(h.asked)
}

// busy is what a call of this process is told of a key that g has.
func (g *grant) busy(c *call, queue int) *BusyError {
	g.mu.Lock()
	h, left := g.h, g.lease-elapsed(g.sent)
	g.mu.Unlock()
	b := &BusyError{Key: c.key, Remaining: max(left, 0), Queue: queue, Waited: c.waited(), Local: true}
	by := context.Background()
	if h != nil {
		b.HeldFor, by = time.Since(h.granted()), h.asked
	}
	b.Holder = parseHolder(g.l.who(by))
	return b
}

// close ends the grant: nothing of it counts any more.
func (g *grant) close() {
	g.mu.Lock()
	if g.cause == nil {
		g.cause = ErrReleased
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.l.dog.remove(g)
}

// until is when the lease ends on the server at the earliest.
func (g *grant) until() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sent.Add(g.lease)
}
