package lockcore

import (
	"context"
	"sync"
	"time"
)

// overrunAfter is how long a handler may take to stop before that is told.
const overrunAfter = 100 * time.Millisecond

// hold is one tenure of a key, from grant or hand-over to the end of its last nested run, and the ctx of that tenure.
// Leases are handles on it. Fields after granted are guarded by grant.mu.
type hold struct {
	context.Context // of the call, canceled when the tenure ends

	g         *grant
	terms     Terms
	token     int64
	abandoned bool
	asked     context.Context //nolint:containedctx // of the Observer's Start: events of this attempt belong to it
	cancel    context.CancelCauseFunc
	outer     *hold // the hold that asked carries
	granted   time.Time

	runs     int  // nested runs that have not returned
	closed   bool // the last run has returned
	cause    error
	lostAt   time.Time
	renewals int
	failures int
	failing  bool

	lease Lease // of the first run

	told struct { // what the Observer heard; its mu keeps one attempt's events in order
		mu                     sync.Mutex
		granted, lost, overrun bool
		early                  Event // Lost, if it came before Granted
		over                   bool  // Released was the last
	}
}

// own is the lease of the first run.
func (h *hold) own() *Lease {
	h.lease.h, h.lease.ctx = h, h
	return &h.lease
}

// Value makes the hold travel in its own ctx.
func (h *hold) Value(key any) any {
	if key == (holdKey{}) {
		return h
	}
	return h.Context.Value(key)
}

// leftLocked is how long ctx may live on what is known now.
func (h *hold) leftLocked() time.Duration {
	left := h.g.leftLocked()
	if h.terms.MaxHold > 0 {
		left = min(left, h.terms.MaxHold-elapsed(h.granted))
	}
	return left
}

// tell passes an event of this attempt on: Lost and Overrun once, and nothing after Released.
func (h *hold) tell(e Event) {
	obs := h.g.l.obs
	if obs == nil {
		return
	}
	t := &h.told
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
			obs.Event(h.asked, t.early)
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
			obs.Event(h.asked, Lost{Cause: e.Lost})
		}
		t.over = true
	}
	obs.Event(h.asked, e)
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
	return !h.closed && h.cause == nil
}

// valid says whether the key is ours for certain now.
func (h *hold) valid() bool {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	return h.validLocked()
}

func (h *hold) validLocked() bool { return !h.closed && h.cause == nil && h.leftLocked() > 0 }

// leave counts a run out. last is true once, for the run that ends the tenure: from then on the grant is on its way, and no
// late answer matters to this hold, which is decided here, before anything is sent. expired: the lease is over, although
// nobody may have noticed yet.
func (h *hold) leave() (last, expired bool, r Released) {
	h.g.mu.Lock()
	h.runs--
	last = h.runs == 0
	if last {
		h.closed = true
		h.g.h = nil
	}
	r = Released{Held: time.Since(h.granted), Renewals: h.renewals, Failures: h.failures, Lost: h.cause}
	expired = h.leftLocked() <= 0
	late := last && h.cause != nil && time.Since(h.lostAt) > overrunAfter
	h.g.mu.Unlock()
	if late {
		h.tell(Lost{Cause: r.Lost})
		h.tell(Overrun{Cause: r.Lost})
	}
	return last, expired, r
}

// endedBy is why the tenure is over, or nil.
func (h *hold) endedBy() error {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	switch {
	case h.cause != nil:
		return h.cause
	case h.closed:
		return ErrReleased
	case h.leftLocked() <= 0:
		return ErrLost
	}
	return nil
}
