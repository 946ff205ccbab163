package lockcore

import "context"

type holdKey struct{}

// holdIn returns the innermost hold of key that ctx carries, valid or not.
func holdIn(ctx context.Context, l *Locker, kind Kind, key string) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	for ; h != nil; h = h.outer() {
		if h.g.l == l && h.g.line.kind == kind && h.g.line.key == key {
			return h
		}
	}
	return nil
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
		return h.g.attempt, h.abandoned
	}
	return 0, false
}

func validIn(ctx context.Context, key string) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	for ; h != nil; h = h.outer() {
		if h.g.line.key == key && h.valid() {
			return h
		}
	}
	return nil
}

// Detach returns a ctx with the values of ctx but without its holds, its cancellation and its deadline: for work that
// outlives the handler. What it guards must be acquired anew.
func Detach(ctx context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(ctx), holdKey{}, (*hold)(nil))
}

// Lose ends every lease that ctx carries as lost, as if Redis had been away for too long: ctx is canceled with ErrLost, and
// each key is free when its handler has returned. It is for tests, see package locktest.
func Lose(ctx context.Context) {
	h, _ := ctx.Value(holdKey{}).(*hold)
	for ; h != nil; h = h.outer() {
		h.g.loseUnder(h, ErrLost)
	}
}

// enter counts a nested run in, unless the hold has ended: whoever comes too late competes like any other.
func (h *hold) enter() bool {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	if !h.validLocked() {
		return false
	}
	h.runs++ //planted:nested-run
	return true
}

// nested is a lease of a nested run and what it has of its own.
type nested struct {
	Lease
	ctx   context.Context //nolint:containedctx // a lease is a context
	untie func()          // nil if ctx is that of the hold
}

// reentered returns the lease of a nested run. It runs under the ctx it came with. That carries the hold, but on the way
// cancellation may have been cut off (context.WithoutCancel), so that the hold's is tied on again.
func (h *hold) reentered(ctx context.Context) *Lease {
	n := &nested{Lease: Lease{h: h}, ctx: ctx}
	n.nested = n
	if ctx != context.Context(h) {
		inner, cancel := context.WithCancelCause(ctx)
		stop := context.AfterFunc(h, func() { cancel(context.Cause(h)) })
		n.ctx = inner
		n.untie = func() { stop(); cancel(ErrReleased) }
	}
	return &n.Lease
}
