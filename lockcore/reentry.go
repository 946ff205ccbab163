package lockcore

import (
	"context"
	"sync/atomic"
	"time"
)

type holdKey struct{}

// entry is one run inside a hold: the first one, which the hold embeds, or a nested one. The entries of a hold form a
// tree by ctx. An entry has at most one open child, so the open entries form a path from the first entry to the
// innermost. Invariants, under grant.mu:
//
//   - The parent of an open entry is open, or it is the first entry.
//   - An entry has waiters only while it is open and has a child, or while the loss of the lease is on its way to them (see dismiss).
//     So a call that finds an entry without a child overtakes no waiter.
//   - hold.runs is the number of open entries. Waiters do not count: the end of the last run does not wait for them.
//
// The table shows what a call does whose ctx carries an entry of its key. "at" is the nearest open entry on its path;
// entries that have ended are skipped.
//
//	the hold has ended, or no entry of the path is open   it acts as a call whose ctx does not carry the hold
//	at has no child                                       it enters: a child of at
//	at has a child, and Wait is NoWait                    *BusyError with Nested
//	at has a child                                        it waits at at, FIFO, and then
//	    the child ends                                        the first waiter enters, decided under grant.mu by the run that ends
//	    Wait ends                                             *BusyError with Nested; if it was chosen before, it enters
//	    its ctx ends                                          that error and the cause of ctx; if it was chosen before, the next waiter enters.
//	                                                          The ctx of a run ends when the run and all runs inside it have returned
//	    Close                                                 ErrClosed; likewise
//	    at ends before its child                              it waits at the parent of at, where the child is then, in the order of arrival
//	    at is the first entry and ends before its child       it competes in the queue of the key for the rest of Wait, as a call without the hold:
//	                                                          the child goes on, but the outer run is over. When the child has
//	                                                          ended, so does the ctx of the hold, and a call with a ctx derived from it is refused
//	    the lease is lost                                     the same: a ctx derived from the hold has ended, and the call is refused with the
//	                                                          cause; a ctx without that cancellation competes
type entry struct {
	of    *hold
	asked context.Context //nolint:containedctx // of the call; that of the first entry is the one of the Observer's Start

	// Guarded by grant.mu.
	parent  *entry    // kept after the entry has ended, because the path continues there
	child   *nested   // open
	waiters *siblings // nil before the first
	over    bool      // the run has returned
}

// carried returns the innermost entry that ctx carries, of any key, open or not.
func carried(ctx context.Context) *entry {
	e, _ := ctx.Value(holdKey{}).(*entry)
	return e
}

// outer is the innermost entry, of any key, that the call's ctx carries.
func (e *entry) outer() *entry { return carried(e.asked) }

// entryIn returns the innermost entry of key that ctx carries, open or not.
func entryIn(ctx context.Context, l *Locker, kind Kind, key string) *entry {
	for e := carried(ctx); e != nil; e = e.outer() {
		if ln := e.of.g.line; e.of.g.l == l && ln.kind == kind && ln.key == key {
			return e
		}
	}
	return nil
}

// nearestLocked returns e or, if it has ended, its nearest open ancestor, or nil.
func (e *entry) nearestLocked() *entry {
	for e != nil && e.over {
		e = e.parent
	}
	return e
}

// holds reports whether a ctx that carries e has the key now: the hold is valid, and a run on the path of e has not
// returned.
func (e *entry) holds() bool {
	e.of.g.mu.Lock()
	defer e.of.g.mu.Unlock()
	return e.of.validLocked() && e.nearestLocked() != nil
}

// TokenOf returns the fencing number under which ctx holds key, whichever Locker or kind of key it is, and whether it
// holds it now: a hold that was released or lost does not count.
func TokenOf(ctx context.Context, key string) (int64, bool) {
	if h := validIn(ctx, key); h != nil {
		return h.token, true
	}
	return 0, false
}

// AttemptOf returns what Attempt and Abandoned say of the lease under which ctx holds key; 0 if it does not hold it now.
func AttemptOf(ctx context.Context, key string) (attempt int, abandoned bool) {
	if h := validIn(ctx, key); h != nil {
		return int(h.g.attempt), h.abandoned
	}
	return 0, false
}

func validIn(ctx context.Context, key string) *hold {
	for e := carried(ctx); e != nil; e = e.outer() {
		if e.of.g.line.key == key && e.holds() {
			return e.of
		}
	}
	return nil
}

// Detach returns a ctx with the values of ctx but without its holds, its cancellation and its deadline: for work that
// outlives the handler. What it guards must be acquired anew.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), holdKey{}, (*entry)(nil))
}

// Lose ends every lease that ctx carries as lost, as if Redis had been away for too long: ctx is canceled with ErrLost, and
// each key is free when its handler has returned. It is for tests, see package locktest.
func Lose(ctx context.Context) {
	for e := carried(ctx); e != nil; e = e.outer() {
		e.of.g.loseUnder(e.of, ErrLost)
	}
}

// nested is a nested run: its lease, its entry and its ctx. The ctx is made when its end or a value is first asked for,
// which most nested runs never do.
type nested struct {
	Lease
	entry

	made   atomic.Bool     // ctx and cancel are set, once, under grant.mu
	done   bool            // ctx ends, or will have ended when it is made; guarded by grant.mu
	ctx    context.Context //nolint:containedctx // a lease is a context
	cancel context.CancelCauseFunc

	outlived *nested // list of the runs around this one that returned first: their ctx ends with this run. Guarded by grant.mu
}

func newNested(ctx context.Context, h *hold) *nested {
	n := &nested{Lease: Lease{h: h}, entry: entry{of: h, asked: ctx}}
	n.nested = n
	return n
}

// enter makes n a run inside e, or inside the nearest open ancestor of e. It returns false if there is none, or if another run is there.
func (e *entry) enter(n *nested) bool {
	e.of.g.mu.Lock()
	defer e.of.g.mu.Unlock()
	at := e.atLocked()
	if at == nil || at.child != nil { //planted:nested-alone
		return false
	}
	at.adoptLocked(n)
	return true
}

// atLocked returns the nearest open entry if the hold is valid, else nil: then the call competes in the queue of the
// key.
func (e *entry) atLocked() *entry {
	if !e.of.validLocked() {
		return nil
	}
	return e.nearestLocked()
}

func (e *entry) adoptLocked(n *nested) {
	h := e.of
	n.parent, e.child = e, n
	h.runs++ //planted:nested-run
}

// closeLocked ends e. A child that goes on, and the waiters, move to the parent. It returns the waiter that enters now,
// if any, and the waiters that have no entry to wait at any more. All of these have left their queue; the caller sends
// them their turns.
func (e *entry) closeLocked() (next, homeless *sibling) {
	e.over = true
	up := e.parent
	if up == nil { // the first entry; a child goes on inside it
		return nil, e.waiters.takeAll()
	}
	up.child = e.child
	e.child = nil
	if c := up.child; c != nil {
		c.parent = up
	}
	switch {
	case up.over:
		return nil, e.waiters.takeAll()
	case !e.waiters.empty():
		if up.waiters == nil {
			up.waiters = new(siblings)
		}
		up.waiters.merge(e.waiters, up)
	}
	if up.waiters.empty() || up.child != nil || e.of.lost {
		return nil, nil
	}
	next = up.waiters.first
	up.waiters.cut(next)
	up.adoptLocked(next.n)
	return next, nil
}

// Deadline returns that of the call's ctx: a hold has none.
func (n *nested) Deadline() (time.Time, bool) { return n.asked.Deadline() }

// Done closes when the nested run is released, when the lease ends, and with the ctx of the call.
func (n *nested) Done() <-chan struct{} { return n.live().Done() }

// Err says that ctx has ended.
func (n *nested) Err() error { return n.live().Err() }

// Value makes the entry travel in its ctx.
func (n *nested) Value(key any) any {
	if key == (holdKey{}) {
		return &n.entry
	}
	return n.live().Value(key)
}

// live returns the ctx of n behind the values. It derives from the ctx of the call, so it ends with the hold. If that
// ctx was detached (context.WithoutCancel), dismiss ends it. It also ends with the release of n or, if runs inside n go
// on, of the last of these, whose ctx derives from it. The goroutine that makes the ctx races with the one that ends
// it: grant.mu decides.
func (n *nested) live() context.Context {
	if n.made.Load() {
		return n.ctx
	}
	ctx, cancel := context.WithCancelCause(n.asked)
	mu := &n.of.g.mu
	mu.Lock()
	cause := n.of.causeLocked()
	if cause == nil && n.done {
		cause = ErrReleased
	}
	if cause != nil {
		mu.Unlock()
		cancel(cause) // before another goroutine gets it
		mu.Lock()
	}
	if n.made.Load() { // by another goroutine
		mu.Unlock()
		cancel(nil)
		return n.ctx
	}
	n.ctx, n.cancel = ctx, cancel
	n.made.Store(true)
	mu.Unlock()
	return ctx
}

// stopLocked ends the ctx of n and those of the runs that n has outlived. If a run inside n goes on, the end of that run
// does it. grant.mu is not held while a ctx is canceled. Meanwhile n is over, so no run enters it, but it is still the
// child of its parent, so no sibling enters. A run around n that returns then adds itself to n.outlived: the loop looks
// again.
func (n *nested) stopLocked() {
	mu := &n.of.g.mu
	for {
		if c := n.child; c != nil {
			last := n
			for last.outlived != nil {
				last = last.outlived
			}
			last.outlived, c.outlived = c.outlived, n
			return
		}
		cut, outlived := false, n.outlived
		for r := n; r != nil; r = r.outlived {
			cut = cut || !r.done && r.made.Load()
			r.done = true
		}
		if !cut {
			return
		}
		n.over, n.outlived = true, nil
		mu.Unlock()
		n.cut()
		for ; outlived != nil; outlived = outlived.outlived {
			outlived.cut()
		}
		mu.Lock()
	}
}

// cut cancels the ctx of n if it was made. Otherwise live cancels it, because done is set.
func (n *nested) cut() {
	if n.made.Load() {
		n.cancel(ErrReleased)
	}
}

// dismiss tells the runs and the waiters of a hold that its lease has ended early. Since lost was set, under grant.mu,
// no waiter was added and none has entered. So dismiss finds all waiters, except those that leave by themselves.
func (h *hold) dismiss(cause error) {
	var cut []*nested
	var homeless *sibling
	h.g.mu.Lock()
	for e := &h.entry; ; {
		if s := e.waiters.takeAll(); s != nil {
			homeless = s.before(homeless)
		}
		n := e.child
		if n == nil {
			break
		}
		for r := n; r != nil; r = r.outlived {
			if r.made.Load() {
				cut = append(cut, r)
			}
		}
		e = &n.entry
	}
	h.g.mu.Unlock()
	for _, n := range cut {
		n.cancel(cause)
	}
	homeless.sendAway()
}
