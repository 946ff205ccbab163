package lockcore

import (
	"context"
	"sync"
	"time"
)

// overrunAfter is how long a handler may take to stop before that is told.
const overrunAfter = 100 * time.Millisecond

// hold is one tenure of a key, from grant or hand-over to the end of its last nested run, and the ctx of that tenure.
// Leases are handles on it. Fields from closed on are guarded by grant.mu.
type hold struct {
	context.Context //nolint:containedctx // of the call, canceled when the tenure ends
	entry           // of the first run

	g       *grant
	token   int64
	maxHold time.Duration // 0: none
	minHold time.Duration // 0: none
	stall   time.Duration // 0: none
	cancel  context.CancelCauseFunc
	began   time.Duration // after grant.since
	beaten  time.Duration // after grant.since: when the handler was last heard of; guarded by grant.mu
	lease   Lease         // of the first run
	told    *told         // nil without an Observer

	abandoned bool
	closed    bool  // the last run has returned
	lost      bool  // the lease ended before; grant.cause says why
	failing   bool  // the last renewal got no answer
	runs      int32 // that have not returned
	arrived   int32 // nested calls that had to wait, see sibling.seq
	renewals  int32
	failures  int32
}

// told is what the Observer heard; its mu keeps one attempt's events in order.
type told struct {
	// Guarded by grant.mu.
	lostAt time.Time
	failed error // of the first run's handler, see Lease.Failed

	mu                     sync.Mutex
	granted, lost, overrun bool
	over                   bool  // Released was the last
	early                  Event // Lost, if it came before Granted
}

// own is the lease of the first run.
func (h *hold) own() *Lease {
	h.lease.h = h
	return &h.lease
}

// Value makes the hold travel in its own ctx.
func (h *hold) Value(key any) any {
	if key == (holdKey{}) {
		return &h.entry
	}
	return h.Context.Value(key)
}

func (h *hold) granted() time.Time { return h.g.since.Add(h.began) }

// leftLocked is how long ctx may live on what is known now.
func (h *hold) leftLocked(now time.Time) time.Duration {
	left := h.g.leftLocked(now)
	if h.maxHold > 0 {
		left = min(left, h.maxHold-between(h.granted(), now)) //planted:max-hold
	}
	if h.stall > 0 {
		left = min(left, h.stall-h.silentLocked(now)) //planted:stall
	}
	return left
}

// silentLocked is how long the handler has not been heard of.
func (h *hold) silentLocked(now time.Time) time.Duration { return between(h.g.since, now) - h.beaten }

// parked is until when the key stays away from others although the tenure has ended.
func (h *hold) parked() time.Time { return h.granted().Add(h.minHold) }

// Beat says that the handler of ctx makes headway: Terms.Stall begins anew, for every key that ctx holds. It costs no command. Without
// Stall, and on a ctx that holds nothing, it does nothing.
func Beat(ctx context.Context) {
	for e := carried(ctx); e != nil; e = e.outer() {
		if h := e.of; h.stall > 0 {
			h.g.mu.Lock()
			h.beaten = elapsed(h.g.since)
			h.g.mu.Unlock()
		}
	}
}

// causeLocked is why the lease ended before its tenure, or nil.
func (h *hold) causeLocked() error {
	if h.lost {
		return h.g.cause
	}
	return nil
}

// tell passes an event of this attempt on: Lost and Overrun once, and nothing after Released.
func (h *hold) tell(e Event) {
	obs, t := h.g.l.obs, h.told
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	switch e := e.(type) {
	case Granted:
		t.granted = true
		obs.Event(h.asked, e)
		if t.early != nil {
			h.background(t.early)
		}
		return
	case Lost:
		if t.lost {
			return
		}
		t.lost = true
		if !t.granted { // MaxHold or Close was faster than the caller
			t.early = e
			return
		}
	case Overrun:
		if t.overrun {
			return
		}
		t.overrun = true
	case Released:
		if e.Lost != nil && !t.lost { // the handler returned between the loss and its report
			h.background(Lost{Cause: e.Lost})
		}
		t.over = true
	}
	switch e.(type) {
	case Lost, Overrun, RenewFailed:
		h.background(e)
	default:
		obs.Event(h.asked, e)
	}
}

// background passes on an event that mostly comes from a goroutine of the Locker: a panic of the Observer is counted.
func (h *hold) background(e Event) {
	h.g.l.shielded(func() { h.g.l.obs.Event(h.asked, e) })
}

// checkOverrun reports a handler that goes on after its ctx has ended.
func (h *hold) checkOverrun() {
	if h.Err() != nil {
		h.tell(Overrun{Cause: context.Cause(h)})
	}
}

// running says that the lease has not ended early and its last run has not returned.
func (h *hold) running() bool {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	return !h.closed && !h.lost
}

// valid says whether the key is ours for certain now.
func (h *hold) valid() bool {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	return h.validLocked()
}

func (h *hold) validLocked() bool { return !h.closed && !h.lost && h.leftLocked(time.Now()) > 0 }

// leave ends the run of n, or the first run if n is nil. last is true once, for the run that ends the tenure: from then on the grant is on its way, and no
// late answer matters to this hold, which is decided here, before anything is sent. expired: the lease is over, although
// nobody may have noticed yet.
func (h *hold) leave(n *nested) (last, expired, late bool, r Released) {
	e := &h.entry
	h.g.mu.Lock()
	if n != nil {
		e = &n.entry
		n.stopLocked()
	}
	r.Lost = h.causeLocked()
	if h.told != nil {
		r.Failed = h.told.failed
	}
	next, homeless := e.closeLocked()
	if h.runs--; h.runs > 0 { //planted:inner-run-left
		h.g.mu.Unlock()
		if next != nil {
			next.turn <- true
		}
		homeless.sendAway()
		return false, false, false, r
	}
	h.closed = true
	h.g.h = nil
	now := time.Now()
	r.Held, r.Renewals, r.Failures = now.Sub(h.granted()), int(h.renewals), int(h.failures)
	expired = h.leftLocked(now) <= 0
	late = h.lost && h.told != nil && now.Sub(h.told.lostAt) > overrunAfter
	h.g.mu.Unlock()
	homeless.sendAway() // the waiters that dismiss has not reached yet
	return true, expired, late, r
}

// endedBy is why the tenure is over, or nil.
func (h *hold) endedBy() error {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	switch {
	case h.lost:
		return h.g.cause
	case h.closed:
		return ErrReleased
	case h.leftLocked(time.Now()) <= 0:
		return ErrLost
	}
	return nil
}
