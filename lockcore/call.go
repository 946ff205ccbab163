package lockcore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

// lateWait is how long a call whose time is up waits for an answer to what others have asked.
const lateWait = callTimeout * 3 / 2

// call is one Acquire or Claim under way. It stands in its key's line until its turn comes: then it runs, or asks Redis for all that
// stand behind it.
type call struct {
	l     *Locker
	kind  Kind
	key   string
	terms Terms
	keep  time.Duration
	mode  string
	tag   string
	check func([]byte) error

	ctx       context.Context //nolint:containedctx // of the Observer's Start
	start     time.Time
	contended bool
	waiting   bool // the Observer was told so
	queue     int  // longest line seen
	line      *line

	// Guarded by the line's lock.
	prev, next *call
	inLine     bool
	late       bool // its time was up before anything was known

	untold chan struct{} // see line; nil once the Observer was told
	own    ask           // most calls make one at most
	has    struct {      // what abandon gives up
		place bool
		a     *ask
		g     *grant
		h     *hold
	}
	turn chan turn // room for the one that it gets; nil while it need not wait
}

// run is the life of a call, from its place in line to a hold, a record or an error.
func (c *call) run(ctx context.Context) (h *hold, rec *Record, err error) {
	if ctx.Err() != nil {
		return nil, nil, errtext.Wrap(ErrNotRun, context.Cause(ctx))
	}
	if !c.l.enter() {
		return nil, nil, ErrClosed
	}
	defer c.l.cleanups.report()
	defer c.l.exit()                   // last, so that Close also waits for what is undone
	if c.ctx = ctx; c.start.IsZero() { // else it has waited for a nested run
		c.start = time.Now()
	}
	if c.l.obs != nil {
		c.ctx = c.l.obs.Start(ctx, Attempt{Kind: c.kind, Name: c.terms.Name, Key: c.key})
	}
	returns := false
	defer func() {
		if !returns { // an Observer or a Check panics: that goes on, but nobody is left to wait for it
			c.abandon()
		}
	}()
	h, rec, err = c.stand()
	if c.l.obs != nil {
		c.report(h, rec, err)
	}
	returns = true
	return h, rec, err
}

// abandon gives up whatever the call has: its tenure, the baton, or its place in line.
func (c *call) abandon() {
	switch {
	case c.has.h != nil:
		_ = c.has.h.own().Release(c.ctx)
	case c.has.g != nil || c.has.a != nil:
		c.line.goOn(c.has.g, c.has.a)
	case c.has.place:
		c.quit(ErrGivenUp)
	}
}

func (c *call) stand() (*hold, *Record, error) {
	front, err := c.l.line(c)
	if err != nil {
		return nil, nil, err
	}
	var t turn
	if !front {
		t = c.await()
		c.has.place = false
	}
	switch {
	case t.err != nil:
		return nil, nil, t.err
	case t.rec != nil:
		rec, err := c.accept(t.rec, t.tag)
		return nil, rec, err
	case t.g != nil:
		if h := t.g.begin(c); h != nil {
			c.has.h = h
			return h, nil, nil
		}
		c.line.notOurs() // lost on its way; we still have the baton
		t.a = t.g.insteadOf(c)
	}
	return c.contend(t.a)
}

// await is the time in line. It ends with a turn, or with an error when the call goes first.
func (c *call) await() turn {
	var timer *time.Timer
	var timeout <-chan time.Time
	if c.terms.Wait != Forever {
		wait := c.terms.Wait - c.waited()
		if c.terms.Wait == NoWait {
			wait = lateWait
		}
		timer = time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	for {
		select {
		case t := <-c.turn:
			return t
		case <-timeout:
			if err := c.timeUp(); err != nil {
				return turn{err: err}
			}
			timer.Reset(lateWait)
		case <-c.untold:
			c.untold = nil
			if s := c.line.say(); s.g != nil || s.busy != nil {
				c.waits(s)
			}
		case <-c.ctx.Done():
			return c.quit(nil)
		case <-c.l.closing:
			return c.quit(ErrClosed)
		}
	}
}

// timeUp leaves the line if it is known why the call has waited in vain; else with the next answer, or after lateWait.
func (c *call) timeUp() error {
	ln := c.line
	ln.mu.Lock()
	if !c.inLine { // a turn is on its way
		ln.mu.Unlock()
		return nil
	}
	if !ln.knownLocked(c) && !c.late {
		c.late = true
		ln.late++
		ln.pokeLocked(c)
		ln.mu.Unlock()
		return nil
	}
	said := ln.sayLocked()
	ln.cutLocked(c)
	ln.mu.Unlock()
	return said.refuse(c)
}

// quit leaves the line. If the turn was faster, an outcome counts and anything else is passed on.
func (c *call) quit(err error) turn {
	ln := c.line
	ln.mu.Lock()
	said := ln.sayLocked()
	waiting := c.inLine
	if waiting {
		ln.cutLocked(c)
	}
	ln.mu.Unlock()
	if !waiting {
		t := <-c.turn
		if t.outcome() {
			return t
		}
		ln.goOn(t.g, t.a)
	}
	if err == nil {
		err = said.refuse(c)
	}
	return turn{err: err}
}

// accept takes a record that another call has got or made.
func (c *call) accept(rec *Record, tag string) (*Record, error) {
	if other(tag, c.tag) { //planted:record-of-other-payload
		return nil, &MismatchError{Key: c.key, Done: true}
	}
	if c.check != nil {
		if err := c.check(rec.Data); err != nil {
			c.l.Report(c.ctx, BadRecord{Err: err})
			return nil, fmt.Errorf("%w: %q: %w", ErrRecord, c.key, err)
		}
	}
	return rec, nil
}

func (c *call) waited() time.Duration { return time.Since(c.start) }

// patience is how long the call may take in all, for another holder or for Redis.
func (c *call) patience() time.Duration {
	switch c.terms.Wait { //nolint:exhaustive // a duration
	case NoWait:
		return callTimeout
	case Forever:
		return math.MaxInt64
	}
	return c.terms.Wait
}

// waits tells that the call stands in line.
func (c *call) waits(s said) {
	c.contended, c.queue = true, max(c.queue, s.n)
	if c.l.obs == nil || c.waiting {
		return
	}
	c.waiting = true
	b := s.holder(c)
	c.queue = max(b.Queue, c.queue)
	c.l.obs.Event(c.ctx, Waiting{Holder: b.Holder, Remaining: b.Remaining, Queue: c.queue})
}

// report is the first event after the outcome: the last one, or Granted.
func (c *call) report(h *hold, rec *Record, err error) {
	waited := c.waited()
	switch {
	case h != nil:
		h.tell(Granted{
			Waited: waited, Contended: c.contended, Queue: c.queue, Token: h.token, Attempt: int(h.g.attempt), Abandoned: h.abandoned,
		})
	case rec != nil:
		c.l.obs.Event(c.ctx, Replayed{Waited: waited, Contended: c.contended, Queue: c.queue, Attempt: rec.Attempt})
	default:
		contended, queue := c.contended, c.queue
		if busy, ok := errors.AsType[*BusyError](err); ok {
			contended, queue = true, max(queue, busy.Queue)
		}
		c.l.obs.Event(c.ctx, Refused{Err: err, Waited: waited, Contended: contended, Queue: queue})
	}
}
