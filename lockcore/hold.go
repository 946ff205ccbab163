package lockcore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
)

// overrunAfter is how long a handler may run after its ctx has ended before Overrun is emitted.
const overrunAfter = 100 * time.Millisecond

// hold is one call's period of ownership of a key, until the end of its last nested run. It is also
// the ctx of that period. A Lease refers to it. grant.mu guards the fields from closed on.
type hold struct {
	context.Context //nolint:containedctx // of the call, canceled when the hold ends
	entry           // of the first run

	grant    *grant
	token    int64
	maxHold  time.Duration // 0: none
	minHold  time.Duration // 0: none
	stall    time.Duration // 0: none
	cancel   context.CancelCauseFunc
	began    time.Duration // time after grant.since
	lastBeat time.Duration // of the handler, time after grant.since; guarded by grant.mu
	lease    Lease         // of the first run
	events   *eventLog     // nil without an Observer
	name     string        // Terms.Name
	limit    int           // Limit.N
	lostAt   time.Duration // when the lease ended early, since grant.since; guarded by grant.mu

	lossLogged, overrunLogged atomic.Bool // see warn

	abandoned   bool
	closed      bool  // the last run has returned
	lost        bool  // the lease ended early; grant.cause says why
	transferred bool  // Ticket has ended the hold
	failing     bool  // the last renewal got no reply
	runs        int32 // number of runs that have not returned
	waited      int32 // number of nested calls that had to wait, see nestedWaiter.seq
	renewals    int32
	failures    int32
}

// eventLog records which events of a hold were emitted. mu keeps the events in order.
type eventLog struct {
	// Guarded by grant.mu.
	failed error // of the first run's handler, see Lease.Failed

	mu                     sync.Mutex
	granted, lost, overrun bool
	closed                 bool        // Released was emitted
	earlyLoss              event.Event // Lost, if it came before Granted
}

// firstLease returns the lease of the first run.
func (h *hold) firstLease() *Lease {
	h.lease.h = h
	return &h.lease
}

// Value returns the entry of the hold, so that its ctx carries it.
func (h *hold) Value(key any) any {
	if key == (access.HoldKey{}) {
		return &h.entry
	}
	return h.Context.Value(key)
}

func (h *hold) grantedAt() time.Time { return h.grant.since.Add(h.began) }

// serverGrantedAt returns grantedAt by the backend's clock: the time of the grant plus the local
// time since then.
func (h *hold) serverGrantedAt() time.Time { return time.UnixMicro(h.grant.granted).Add(h.began) }

// leftLocked returns how long the ctx may still be valid: the minimum for lease, MaxHold and Stall.
func (h *hold) leftLocked(now time.Time) time.Duration {
	left := h.grant.leftLocked(now)
	if h.maxHold > 0 {
		left = min(left, h.maxHold-between(h.grantedAt(), now)) //planted:max-hold
	}
	if h.stall > 0 {
		left = min(left, h.stall-h.sinceBeatLocked(now)) //planted:stall
	}
	return left
}

// sinceBeatLocked returns the time since the last Beat of the handler.
func (h *hold) sinceBeatLocked(now time.Time) time.Duration {
	return between(h.grant.since, now) - h.lastBeat
}

// coolUntil returns the end of MinHold.
func (h *hold) coolUntil() time.Time { return h.grantedAt().Add(h.minHold) }

// Beat reports progress of the handler of ctx. It restarts Terms.Stall for every key that ctx
// holds. It sends no command. It does nothing without Stall, or if ctx holds no key.
func Beat(ctx context.Context) {
	for e := entryOf(ctx); e != nil; e = e.outer() {
		if h := e.of; h.stall > 0 {
			h.grant.mu.Lock()
			h.lastBeat = elapsed(h.grant.since)
			h.grant.mu.Unlock()
		}
	}
}

// causeLocked returns why the lease ended early, or nil.
func (h *hold) causeLocked() error {
	if h.lost {
		return h.grant.cause
	}
	return nil
}

// emit passes an event of this hold to the Observer. It emits Lost and Overrun at most once each,
// and no event after Released.
func (h *hold) emit(e event.Event) {
	h.warn(e)
	obs, t := h.grant.l.observer, h.events
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	switch e := e.(type) {
	case event.Granted:
		t.granted = true
		obs.Event(h.callCtx, e)
		if t.earlyLoss != nil {
			h.emitShielded(t.earlyLoss)
		}
		return
	case event.Lost:
		if t.lost {
			return
		}
		t.lost = true
		if !t.granted { // MaxHold or Close ended the lease before the caller emitted Granted
			t.earlyLoss = e
			return
		}
	case event.Overrun:
		if t.overrun {
			return
		}
		t.overrun = true
	case event.Released:
		if e.Lost != nil && !t.lost { // the handler returned after the loss, before Lost was emitted
			h.emitShielded(event.Lost{Cause: e.Lost})
		}
		t.closed = true
	}
	switch e.(type) {
	case event.Lost, event.Overrun, event.RenewFailed:
		h.emitShielded(e)
	default:
		obs.Event(h.callCtx, e)
	}
}

// emitShielded emits an event that usually comes from a goroutine of the Locker. A panic of the
// Observer is recovered and counted.
func (h *hold) emitShielded(e event.Event) {
	h.grant.l.shielded(func() { h.grant.l.observer.Event(h.callCtx, e) })
}

// checkOverrun emits Overrun if the handler runs although its ctx has ended.
func (h *hold) checkOverrun() {
	if h.Err() != nil {
		h.emit(event.Overrun{Cause: context.Cause(h)})
	}
}

// running reports whether a run has not returned yet. It returns false after the lease has ended
// early.
func (h *hold) running() bool {
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	return !h.closed && !h.lost
}

// valid reports whether this hold certainly has the key now.
func (h *hold) valid() bool {
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	return h.validLocked()
}

func (h *hold) validLocked() bool { return !h.closed && !h.lost && h.leftLocked(time.Now()) > 0 }

// endRun ends the run of n, or the first run if n is nil. The results are:
//
//   - last is true exactly once, for the run that ends the hold.
//   - expired reports whether the lease has expired by the clock.
//   - late reports whether the handler continued to run after the loss of the lease.
//
// The outcome is decided here, before any command is sent. So a later reply does not change it.
func (h *hold) endRun(n *nested) (last, expired, late bool, r event.Released) {
	e := &h.entry
	h.grant.mu.Lock()
	if n != nil {
		e = &n.entry
		n.endLocked()
	}
	r.Lost = h.causeLocked()
	if h.events != nil {
		r.Failed = h.events.failed
	}
	next, stranded := e.closeLocked()
	if h.runs--; h.runs > 0 { //planted:inner-run-left
		h.grant.mu.Unlock()
		if next != nil {
			next.turn <- true
		}
		stranded.rejectAll()
		return false, false, false, r
	}
	h.closed = true
	h.grant.hold = nil
	now := time.Now()
	r.Held, r.Renewals, r.Failures = now.Sub(h.grantedAt()), int(h.renewals), int(h.failures)
	expired = h.leftLocked(now) <= 0
	late = h.lost && between(h.grant.since, now)-h.lostAt > overrunAfter
	h.grant.mu.Unlock()
	stranded.rejectAll() // waiters that cancelNested has not rejected yet
	return true, expired, late, r
}

// endedBy returns why the hold has ended, or nil.
func (h *hold) endedBy() error {
	h.grant.mu.Lock()
	defer h.grant.mu.Unlock()
	switch {
	case h.lost:
		return h.grant.cause
	case h.closed:
		return ErrReleased
	case h.leftLocked(time.Now()) <= 0:
		return ErrLost
	}
	return nil
}
