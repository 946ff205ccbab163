package lockcore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/testhook"
)

// entry is one run inside a hold: the first run, which the hold embeds, or a nested run. The
// entries of a hold form a tree by ctx. An entry has at most one open child, so the open entries
// form a path from the first entry to the innermost. Invariants, under grant.mu:
//
//   - The parent of an open entry is open, or it is the first entry.
//   - An entry has waiters only while it is open and has a child, or after the loss of the lease
//     until cancelNested rejects them. So a call that enters an entry without a child overtakes no
//     waiter.
//   - hold.runs is the number of open entries. Waiters do not count: the end of the last run does
//     not wait for them.
//
// This list shows the behavior of a call whose ctx carries an entry of its key. "at" is the nearest
// open entry on its path. Entries that have ended are skipped.
//
//   - The hold has ended, or no entry of the path is open: the call behaves as if its ctx did not
//     carry the hold.
//   - at has no child: the call enters as a child of at.
//   - at has a child, and Wait is NoWait: *BusyError with Nested.
//   - at has a child: the call waits in the FIFO queue of at until one of the events below.
//
// The events that end the wait:
//
//   - The child ends: the first waiter enters. The run that ends decides that under grant.mu.
//   - Wait ends: *BusyError with Nested. A waiter that was already chosen enters.
//   - The ctx of the call ends: that error, joined with the cause of ctx. If the waiter was already
//     chosen, the next waiter enters. The ctx of a run ends when the run and all runs inside it
//     have returned.
//   - Close: ErrClosed. If the waiter was already chosen, the next waiter enters.
//   - at ends before its child: the child and the waiter move to the parent of at. The waiter keeps
//     its order of arrival.
//   - at is the first entry and ends before its child. The outer run has ended, so the call
//     competes in the queue of the key for the rest of Wait, as a call without the hold. If the ctx
//     of the call derives from the hold, it ends with the child, and the call is refused.
//   - The lease is lost: a call whose ctx derives from the hold is refused with the cause. A call
//     whose ctx is not canceled competes.
type entry struct {
	of      *hold
	callCtx context.Context //nolint:containedctx // of the call; for the first entry, the ctx that the Observer's Start returned

	// Guarded by grant.mu.
	parent   *entry       // kept after the entry has ended, because the path continues there
	child    *nested      // the open child, or nil
	waiters  *nestedQueue // nil before the first waiter
	returned bool         // the run has returned
}

// entryOf returns the innermost entry that ctx carries, of any key, open or not.
func entryOf(ctx context.Context) *entry {
	e, _ := ctx.Value(access.HoldKey{}).(*entry)
	return e
}

// outer returns the innermost entry, of any key, that the ctx of the call of e carries.
func (e *entry) outer() *entry { return entryOf(e.callCtx) }

// entryIn returns the innermost entry of key that ctx carries, open or not.
func entryIn(ctx context.Context, l *Locker, kind event.Kind, key string) *entry {
	for e := entryOf(ctx); e != nil; e = e.outer() {
		if q := e.of.grant.queue; e.of.grant.l == l && q.key.Kind == backend.Kind(kind) && q.key.Name == key {
			return e
		}
	}
	return nil
}

// nearestOpenLocked returns e if it is open. Otherwise it returns the nearest open ancestor of e,
// or nil.
func (e *entry) nearestOpenLocked() *entry {
	for e != nil && e.returned {
		e = e.parent
	}
	return e
}

// holds reports whether a ctx that carries e has the key now. It does if the hold is valid, and a
// run on the path of e has not returned.
func (e *entry) holds() bool {
	e.of.grant.mu.Lock()
	defer e.of.grant.mu.Unlock()
	return e.of.validLocked() && e.nearestOpenLocked() != nil
}

// Current is access.Current for a ctx that carries e.
func (e *entry) Current() (access.Hold, bool) {
	for ; e != nil; e = e.outer() {
		if e.holds() {
			return e.of.public(), true
		}
	}
	return access.Hold{}, false
}

// HoldOf is access.HoldOf for a ctx that carries e.
func (e *entry) HoldOf(key string) (access.Hold, bool) {
	for ; e != nil; e = e.outer() {
		if e.of.grant.queue.key.Name == key && e.holds() {
			return e.of.public(), true
		}
	}
	return access.Hold{}, false
}

// BeforeWork is access.BeforeWork for a ctx that carries e.
func (e *entry) BeforeWork() (holds bool) {
	for ; e != nil; e = e.outer() {
		if !e.holds() {
			continue
		}
		if e.of.grant.queue.key.Kind == backend.KindOnce {
			return false
		}
		holds = true
	}
	return holds
}

// SkipMinHold is access.SkipMinHold for a ctx that carries e. Only the goroutine of the first run
// calls it, before that run returns. So minHold needs no mutex: each run returns under grant.mu, and
// the last run reads the new value.
func (e *entry) SkipMinHold() {
	if e != nil && e == &e.of.entry {
		e.of.minHold = 0
	}
}

func (h *hold) public() access.Hold {
	return access.Hold{
		Key: h.grant.queue.key.Name, Token: h.token, GrantedAt: h.serverGrantedAt(), Attempt: int(h.grant.attempt), TookOver: h.abandoned,
		Grant: h.grant.name(),
	}
}

// Detach returns a ctx with the values of ctx but without its holds, cancellation and deadline. Use
// it for work that outlives the handler. Such work must acquire its own keys.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), access.HoldKey{}, (*entry)(nil))
}

func init() { testhook.Lose = lose } //nolint:gochecknoinits // a test hook must not be part of the public API

// lose ends every lease that ctx carries with ErrLost, as if the backend had been unavailable for
// too long.
func lose(ctx context.Context) {
	for e := entryOf(ctx); e != nil; e = e.outer() {
		e.of.grant.loseUnder(e.of, ErrLost)
	}
}

// nested is a nested run: its lease, its entry and its ctx. The ctx is made when its Done, Err or a
// value is first requested, because most nested runs never need it.
type nested struct {
	Lease
	entry

	ready    atomic.Bool     // ctx and cancel are set, once, under grant.mu
	ctxEnded bool            // ctx has ended, or is made as an ended one; guarded by grant.mu
	ctx      context.Context //nolint:containedctx // a lease is a context
	cancel   context.CancelCauseFunc

	outlived *nested // list of the outer runs that returned before this one: their ctx ends with this run; guarded by grant.mu
}

func newNested(ctx context.Context, h *hold) *nested {
	n := &nested{Lease: Lease{h: h}, entry: entry{of: h, callCtx: ctx}}
	n.nested = n
	return n
}

// enter makes n a run inside e, or inside the nearest open ancestor of e. It returns false if the
// hold is not valid, if no entry on the path is open, or if the nearest open entry already has a
// child.
func (e *entry) enter(n *nested) bool {
	e.of.grant.mu.Lock()
	defer e.of.grant.mu.Unlock()
	at := e.openLocked()
	if at == nil || at.child != nil { //planted:nested-alone
		return false
	}
	at.openChildLocked(n)
	return true
}

// openLocked returns the nearest open entry if the hold is valid. Otherwise it returns nil, and the
// call competes in the queue of the key.
func (e *entry) openLocked() *entry {
	if !e.of.validLocked() {
		return nil
	}
	return e.nearestOpenLocked()
}

func (e *entry) openChildLocked(n *nested) {
	h := e.of
	n.parent, e.child = e, n
	h.runs++ //planted:nested-run
}

// closeLocked ends e. A child that is still open, and the waiters, move to the parent.
//
//   - next is the waiter that enters now, if any.
//   - stranded is the list of waiters that no longer have an entry to wait at.
//
// These waiters have left their queue, and the caller must send them their turns.
func (e *entry) closeLocked() (next, stranded *nestedWaiter) {
	e.returned = true
	up := e.parent
	if up == nil { // the first entry; its child stays
		return nil, e.waiters.takeAll()
	}
	up.child = e.child
	e.child = nil
	if c := up.child; c != nil {
		c.parent = up
	}
	switch {
	case up.returned:
		return nil, e.waiters.takeAll()
	case !e.waiters.empty():
		if up.waiters == nil {
			up.waiters = new(nestedQueue)
		}
		up.waiters.merge(e.waiters, up)
	}
	if up.waiters.empty() || up.child != nil || e.of.lost {
		return nil, nil
	}
	next = up.waiters.first
	up.waiters.remove(next)
	up.openChildLocked(next.n)
	return next, nil
}

// Deadline returns the deadline of the ctx of the call. A hold adds none.
func (n *nested) Deadline() (time.Time, bool) { return n.callCtx.Deadline() }

// Done is closed when the nested run is released, when the lease ends, and when the ctx of the call
// ends.
func (n *nested) Done() <-chan struct{} { return n.context().Done() }

// Err returns a non-nil error after Done is closed.
func (n *nested) Err() error { return n.context().Err() }

// Value returns the entry, so that the ctx carries it.
func (n *nested) Value(key any) any {
	if key == (access.HoldKey{}) {
		return &n.entry
	}
	return n.context().Value(key)
}

// context returns the ctx of n without the entry, which Value adds. The ctx derives from the ctx of
// the call, so it ends with the hold. If that ctx was detached (context.WithoutCancel),
// cancelNested ends it. The ctx also ends with the release of n. If runs inside n are still open
// then, it ends with the last of them, because their ctx derives from it. The goroutine that makes
// the ctx races with the one that ends it, and grant.mu decides.
func (n *nested) context() context.Context {
	if n.ready.Load() {
		return n.ctx
	}
	ctx, cancel := context.WithCancelCause(n.callCtx)
	mu := &n.of.grant.mu
	mu.Lock()
	cause := n.of.causeLocked()
	if cause == nil && n.ctxEnded {
		cause = ErrReleased
	}
	if cause != nil {
		mu.Unlock()
		cancel(cause) // before another goroutine can use the ctx
		mu.Lock()
	}
	if n.ready.Load() { // another goroutine was first
		mu.Unlock()
		cancel(nil)
		return n.ctx
	}
	n.ctx, n.cancel = ctx, cancel
	n.ready.Store(true)
	mu.Unlock()
	return ctx
}

// endLocked ends the ctx of n and those of the runs in n.outlived. If a run inside n is still open,
// the end of that run ends them instead. grant.mu is unlocked while a ctx is canceled. During that
// time n has ended, so no run enters it. But n is still the child of its parent, so no sibling
// enters. An outer run that returns during that time adds itself to n.outlived, so the loop checks
// again.
func (n *nested) endLocked() {
	mu := &n.of.grant.mu
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
			cut = cut || !r.ctxEnded && r.ready.Load()
			r.ctxEnded = true
		}
		if !cut {
			return
		}
		n.returned, n.outlived = true, nil
		mu.Unlock()
		n.cancelContext()
		for ; outlived != nil; outlived = outlived.outlived {
			outlived.cancelContext()
		}
		mu.Lock()
	}
}

// cancelContext cancels the ctx of n if it was made. If it is made later, context cancels it,
// because ctxEnded is set.
func (n *nested) cancelContext() {
	if n.ready.Load() {
		n.cancel(ErrReleased)
	}
}

// cancelNested cancels the runs and rejects the waiters of a hold whose lease has ended early.
// After lost was set under grant.mu, no waiter is added and none enters. So cancelNested reaches
// all waiters, except those that leave by themselves.
func (h *hold) cancelNested(cause error) {
	var cut []*nested
	var stranded *nestedWaiter
	h.grant.mu.Lock()
	for e := &h.entry; ; {
		if s := e.waiters.takeAll(); s != nil {
			stranded = s.before(stranded)
		}
		n := e.child
		if n == nil {
			break
		}
		for r := n; r != nil; r = r.outlived {
			if r.ready.Load() {
				cut = append(cut, r)
			}
		}
		e = &n.entry
	}
	h.grant.mu.Unlock()
	for _, n := range cut {
		n.cancel(cause)
	}
	stranded.rejectAll()
}
