package lockcore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// replyWait is how long a call whose wait has expired still waits for a reply to the leader's
// request. With that reply the call reports a useful error.
const replyWait = backend.CallTimeout * 3 / 2

// call is one Acquire or Claim in progress. It waits in the local queue of its key until its turn:
// the key, the leadership, or an outcome. The leader sends the requests for all calls behind it.
//
// A program may have many calls that wait, so a call contains only what each of them needs. It takes
// 352 bytes, the channel given takes 112, and so does each channel for which awaitTurn waits.
type call struct {
	l            *Locker
	kind         event.Kind
	atMostOnce   bool
	fixed        bool // its lease is not renewed
	contended    bool
	waitReported bool // Waiting was emitted

	// Guarded by the mutex of the queue.
	queued  bool
	overdue bool // refused as soon as the holder is known: NoWait, its wait has expired, or crowded
	crowded bool // overdue because of MaxWaiting; it becomes a waiter if a place is free when the holder becomes known

	// What giveUp must release, with owned.
	hasPlace bool // in the queue
	leads    bool // only with owned.share: the call is also the leader, and owned.request may be set

	longest     int32 // length of the longest queue seen
	key         string
	limit       Limit // zero: the key alone
	terms       Terms
	keep        time.Duration
	fingerprint string
	check       func([]byte) error
	interim     *access.Interim // nil: the call does not request an interim answer

	ctx   context.Context //nolint:containedctx // of the Observer's Start
	start time.Time
	queue *keyQueue

	// Guarded by the mutex of the queue.
	prev, next *call
	scheduled  // for the end of its wait, see waitEnds

	owned struct {
		request *request
		grant   *grant
		share   *grant // grant of a share; the call is the leader only if leads is set
		hold    *hold
	}

	holderKnown chan struct{} // of the queue, see keyQueue; nil after Waiting was emitted
	turn        turn          // set before the send to given
	admitted    *admitted     // what a call of Throttle got
	given       chan struct{} // capacity 1; nil if the call does not wait for a turn
}

// makeGiven makes the channel on which the call receives its turn.
func (c *call) makeGiven() {
	if c.given, _ = c.l.givens.Get().(chan struct{}); c.given == nil {
		c.given = make(chan struct{}, 1)
	}
}

// dropGiven returns the channel to the pool. The channel is empty, and no goroutine will send to
// it.
func (c *call) dropGiven() {
	if c.given != nil {
		c.l.givens.Put(c.given)
		c.given = nil
	}
}

// give sends the call its turn. Only the goroutine that removed the call from the queue calls give,
// exactly once.
func (c *call) give(t turn) {
	c.turn = t
	c.given <- struct{}{}
}

// run executes the call. It returns a hold, a record or an error.
func (c *call) run(ctx context.Context) (h *hold, rec *Record, err error) {
	if ctx.Err() != nil {
		return nil, nil, errtext.Wrap(ErrNotRun, context.Cause(ctx))
	}
	if !c.l.startCall() {
		return nil, nil, ErrClosed
	}
	defer c.l.backend.Report()
	defer c.l.endCall()                // runs after giveUp, so that Close also waits for the withdrawals of giveUp
	if c.ctx = ctx; c.start.IsZero() { // otherwise the call has already waited for a nested run
		c.start = time.Now()
	}
	if c.l.observer != nil {
		c.ctx = c.l.observer.Start(ctx, event.Acquisition{Kind: c.kind, Name: c.terms.Name, Key: c.key, Limit: c.limit.N, Rate: c.limit.Rate.N > 0, Backend: c.l.backend.Name(), Locker: c.l.id})
	}
	returns := false
	defer func() {
		if !returns { // an Observer or a Check panicked: giveUp lets the waiters continue
			c.giveUp()
		}
	}()
	h, rec, err = c.takeTurn()
	c.warnTakeover(h)
	if c.l.observer != nil {
		c.report(h, rec, err)
	}
	returns = true
	return h, rec, err
}

// giveUp releases what the call owns: its hold, the leadership, or its place in the queue.
func (c *call) giveUp() {
	switch {
	case c.owned.hold != nil:
		_ = c.owned.hold.firstLease().Release(c.ctx)
	case c.owned.share != nil:
		c.owned.share.discard()
		if c.leads {
			c.queue.passLeadership(nil, c.owned.request)
		}
	case c.owned.grant != nil || c.owned.request != nil:
		c.queue.passLeadership(c.owned.grant, c.owned.request)
	case c.hasPlace:
		c.leaveQueue(ErrGivenUp)
	}
}

// takeTurn enters the queue of the key, and returns what the call gets at its turn.
func (c *call) takeTurn() (*hold, *Record, error) {
	leads, joined, err := c.l.enqueue(c)
	if err != nil {
		return nil, nil, err
	}
	var t turn
	switch {
	case joined != nil:
		t.grant = joined.newGrant(c)
	case !leads:
		t = c.awaitTurn()
		c.hasPlace = false
		c.dropGiven()
	}
	switch {
	case t.result != nil:
		rec, err := t.result.of(c)
		c.admitted = t.result.admitted
		return nil, rec, err
	case t.ofShare():
		if h, err := c.runShare(t.grant); h != nil || err != nil {
			return h, nil, err
		}
		return c.takeTurn() // the lease ended during the hand-off
	case t.grant != nil:
		if h := t.grant.startHold(c); h != nil {
			c.owned.hold = h
			return h, nil, nil
		}
		c.queue.clearGrant(c) // the lease ended during the hand-off; this call is still the leader
		t.request = t.grant.requestAfter(c)
	}
	h, rec, err := c.lead(t.request)
	c.dropGiven()
	return h, rec, err
}

// awaitTurn waits in the queue. It returns the turn, or a turn with an error if the call ends
// first. After it returns, no goroutine sends to c.given. The end of the wait and Close come as a
// turn too, see waitEnds, because another channel would take more memory.
func (c *call) awaitTurn() turn {
	for {
		select {
		case <-c.given:
			return c.turn
		case <-c.holderKnown:
			c.onHolderKnown()
		case <-c.ctx.Done():
			return c.leaveQueue(nil)
		}
	}
}

// onHolderKnown emits Waiting, unless MaxWaiting refuses the call.
func (c *call) onHolderKnown() {
	c.holderKnown = nil
	q := c.queue
	q.mu.Lock()
	s, refused := q.snapshotLocked(), c.crowded
	q.mu.Unlock()
	if !refused && (s.grant != nil || s.busy != nil) {
		c.reportWaiting(s)
	}
}

// leaveQueue removes the call from the queue. If another goroutine already sent the call a turn,
// leaveQueue returns the turn if it is an outcome. Otherwise it passes the share or the leadership
// on.
func (c *call) leaveQueue(err error) turn {
	q := c.queue
	q.mu.Lock()
	snap := q.snapshotLocked()
	waiting := c.queued
	if waiting {
		q.removeLocked(c)
	}
	q.mu.Unlock()
	if !waiting {
		<-c.given
		t := c.turn
		switch {
		case t.result != nil:
			return t
		case t.ofShare():
			q.dropShare(t.grant)
		default:
			q.passLeadership(t.grant, t.request)
		}
	}
	if err == nil {
		return turn{result: &result{refused: &snap}}
	}
	return turn{result: &result{err: err}}
}

// acceptRecord returns the record, or an error if this call cannot use it.
func (c *call) acceptRecord(rec *Record, fingerprint string) (*Record, error) {
	if mismatch(fingerprint, c.fingerprint) { //planted:record-of-other-payload
		return nil, &MismatchError{Key: c.key, Done: true}
	}
	if c.check != nil {
		if err := c.check(rec.Data); err != nil {
			c.l.report(c.ctx, event.BadRecord{Err: err})
			return nil, fmt.Errorf("%w: %q: %w", ErrRecord, c.key, err)
		}
	}
	return rec, nil
}

func (c *call) waited() time.Duration { return time.Since(c.start) }

// maxWait returns how long the call may wait in total, for another holder or for Redis.
func (c *call) maxWait() time.Duration {
	switch c.terms.Wait { //nolint:exhaustive // a duration
	case NoWait:
		return backend.CallTimeout
	case Forever:
		return math.MaxInt64
	}
	return c.terms.Wait
}

// reportWaiting emits Waiting once.
func (c *call) reportWaiting(s snapshot) {
	c.contended = true
	c.see(s.queued)
	if c.l.observer == nil || c.waitReported {
		return
	}
	c.waitReported = true
	b := s.busyError(c)
	c.see(b.Queue)
	c.l.observer.Event(c.ctx, event.Waiting{Holder: b.Holder, Remaining: b.Remaining, Queue: int(c.longest)})
}

// see records the length of the queue.
func (c *call) see(queue int) {
	c.longest = max(c.longest, int32(min(queue, math.MaxInt32))) //nolint:gosec // bounded
}

// report emits the event of the outcome: Granted, Replayed or Refused.
func (c *call) report(h *hold, rec *Record, err error) {
	w := event.Wait{Waited: c.waited(), Contended: c.contended, Queue: int(c.longest)}
	switch {
	case h != nil:
		h.emit(event.Granted{Wait: w, Token: h.token, Attempt: int(h.grant.attempt), Abandoned: h.abandoned})
	case rec != nil:
		c.l.observer.Event(c.ctx, event.Replayed{Wait: w, Attempt: rec.Attempt})
	case c.admitted != nil:
		c.l.observer.Event(c.ctx, event.Admitted{Wait: w})
	default:
		if busy, ok := errors.AsType[*BusyError](err); ok {
			w.Contended, w.Queue = true, max(w.Queue, busy.Queue)
		}
		c.l.observer.Event(c.ctx, event.Refused{Wait: w, Err: err})
	}
}
