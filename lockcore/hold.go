package lockcore

import (
	"context"
	"sync"
	"time"
)

// overrunAfter is how long a handler may take to stop before that is told.
const overrunAfter = 100 * time.Millisecond

// hold is one tenure of a key, from grant to the end of its last nested run. Leases are handles on it.
//
// mu decides every race between renewal, loss, re-entry and release: whoever sets closed or cause first has won. No
// Redis call and no Observer call is made under it.
type hold struct {
	l         *Locker
	kind      Kind
	key       string
	keys      [2]string
	id        string
	token     int64
	attempt   int
	abandoned bool
	terms     Terms
	keep      time.Duration // retention of the hash once the key is free
	granted   time.Time
	asked     context.Context //nolint:containedctx // of the Observer's Start: events of this attempt belong to it
	ctx       context.Context //nolint:containedctx // a lease is a context: asked, canceled when the lease ends, and carrying this hold
	cancel    context.CancelCauseFunc
	outer     *hold // the hold that asked carries
	repeated  bool  // its acquire was sent more than once: a copy may come late

	mu       sync.Mutex
	runs     int  // nested runs that have not returned
	closed   bool // the last run has returned
	cause    error
	lostAt   time.Time
	sent     time.Time     // when the acquire or renewal was sent that counts
	lease    time.Duration // and what it asked for
	timer    *time.Timer   // cancels ctx before the lease can end
	renewals int
	failures int
	failing  bool

	told struct { // what the Observer heard; its mu keeps one attempt's events in order
		mu                     sync.Mutex
		granted, lost, overrun bool
		early                  Event // Lost, if it came before Granted
		over                   bool  // Released was the last
	}

	due   time.Time // of the next renewal; guarded by watchdog.mu, as are the next three
	index int       // in the watchdog's heap, -1 when it is not in it
	kept  bool      // the watchdog keeps it
	poked bool      // due again as soon as the renewal under way has its answer
}

// start makes the hold's ctx and its timer. It runs before anybody else knows h.
func (h *hold) start() {
	h.outer, _ = h.asked.Value(holdKey{}).(*hold)
	ctx, cancel := context.WithCancelCause(h.asked)
	h.ctx, h.cancel = context.WithValue(ctx, holdKey{}, h), cancel
	h.runs = 1
	h.granted = time.Now()
	h.mu.Lock() // the timer may fire before it is in its field
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.leftLocked(), h.expire)
}

// leftLocked is how long ctx may live on what is known now.
func (h *hold) leftLocked() time.Duration {
	left := usable(h.lease) - elapsed(h.sent)
	if h.terms.MaxHold > 0 {
		left = min(left, h.terms.MaxHold-elapsed(h.granted))
	}
	return left
}

// expire runs when the timer fires. A renewal that moved the end while it fired wins: then the timer is set again.
func (h *hold) expire() {
	h.mu.Lock()
	left := h.leftLocked()
	if left > 0 && !h.closed && h.cause == nil {
		h.timer.Reset(left)
		h.mu.Unlock()
		return
	}
	cause := ErrLost
	if h.terms.MaxHold > 0 && elapsed(h.granted) >= h.terms.MaxHold {
		cause = ErrMaxHold
	}
	h.mu.Unlock()
	h.lose(cause)
}

// lose ends the lease before its handler: ctx is canceled, nothing is renewed any more. The first cause stays; after the
// last run has returned it does nothing.
func (h *hold) lose(cause error) {
	h.mu.Lock()
	if h.closed || h.cause != nil {
		h.mu.Unlock()
		return
	}
	h.cause, h.lostAt = cause, time.Now()
	h.timer.Stop()
	h.mu.Unlock()
	h.cancel(cause)
	h.l.dog.remove(h)
	h.tell(Lost{Cause: cause})
}

// tell passes an event of this attempt on: Lost and Overrun once, and nothing after Released.
func (h *hold) tell(e Event) {
	if h.l.obs == nil {
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
		h.l.obs.Event(h.asked, e)
		if t.early != nil {
			h.l.obs.Event(h.asked, t.early)
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
			h.l.obs.Event(h.asked, Lost{Cause: e.Lost})
		}
		t.over = true
	}
	h.l.obs.Event(h.asked, e)
}

// renewed takes the answer "kept" to a renewal into account. One that was sent too long ago changes nothing.
func (h *hold) renewed(sent time.Time, lease time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.renewals++
	h.failing = false
	if h.closed || h.cause != nil || usable(lease)-elapsed(sent) <= usable(h.lease)-elapsed(h.sent) {
		return
	}
	h.sent, h.lease = sent, lease
	h.timer.Reset(h.leftLocked())
}

// unanswered counts a renewal without an answer: unknown, not lost. The timer decides.
func (h *hold) unanswered(err error) {
	h.mu.Lock()
	first := !h.failing
	h.failing = true
	h.failures++
	h.mu.Unlock()
	if first {
		h.tell(RenewFailed{Err: err})
	}
}

// checkOverrun reports a handler that goes on after its ctx has ended.
func (h *hold) checkOverrun() {
	if h.ctx.Err() != nil {
		h.tell(Overrun{Cause: context.Cause(h.ctx)})
	}
}

// running says that the lease has not ended early and its last run has not returned.
func (h *hold) running() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.closed && h.cause == nil
}

// valid says whether the key is ours for certain now.
func (h *hold) valid() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.validLocked()
}

func (h *hold) validLocked() bool { return !h.closed && h.cause == nil && h.leftLocked() > 0 }

// leave counts a run out. last is true once, for the run that ends the hold: from then on nothing renews it and no late
// answer matters, which is decided here, before anything is sent. expired: the lease is over, although nobody may have
// noticed yet.
func (h *hold) leave() (last, expired bool, r Released) {
	h.mu.Lock()
	h.runs--
	last = h.runs == 0
	if last {
		h.closed = true
		h.timer.Stop()
	}
	r = Released{Held: time.Since(h.granted), Renewals: h.renewals, Failures: h.failures, Lost: h.cause}
	expired = h.leftLocked() <= 0
	late := last && h.cause != nil && time.Since(h.lostAt) > overrunAfter
	h.mu.Unlock()
	if late {
		h.tell(Lost{Cause: r.Lost})
		h.tell(Overrun{Cause: r.Lost})
	}
	return last, expired, r
}
