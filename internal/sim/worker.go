package sim

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// slack is what a call may take beyond its own patience: a command that gets no answer.
const slack = 2500 * time.Millisecond

// worker is one goroutine of a process that wants keys.
type worker struct {
	w    *world
	n    *node
	rng  rng
	name string
}

func (wk *worker) loop(ctx context.Context, turn func()) {
	for ctx.Err() == nil {
		turn()
		sleep(ctx, wk.rng.between(0, 1500*time.Millisecond))
	}
}

// terms are short leases and all kinds of patience.
func (wk *worker) terms() lockcore.Terms {
	r := wk.rng
	t := lockcore.Terms{Lease: r.between(time.Second, 5*time.Second), NoRenew: r.chance(25)}
	switch {
	case r.chance(15):
		t.Wait = lockcore.NoWait
	case r.chance(20):
		t.Wait = r.between(time.Millisecond, time.Second)
	case r.chance(10):
		t.Wait = lockcore.Forever
	default:
		t.Wait = r.between(2*time.Second, 20*time.Second)
	}
	if r.chance(15) {
		t.MaxHold = r.between(50*time.Millisecond, 4*time.Second)
	}
	return t
}

// caller returns the ctx of one call. Some give up, while they wait or while they hold.
func (wk *worker) caller() (context.Context, context.CancelFunc) {
	ctx := wk.w.root
	if wk.rng.chance(15) {
		return context.WithTimeout(ctx, wk.rng.between(0, 6*time.Second))
	}
	return context.WithCancel(ctx)
}

// exclusive takes one key, holds it for a while, and gives it back.
func (wk *worker) exclusive() {
	name, t := exclusiveKey(wk.rng.IntN(wk.w.c.Keys)), wk.terms()
	ctx, cancel := wk.caller()
	defer cancel()
	k := wk.w.key(name)
	done := wk.w.wait(ctx, k, wk.n, wk.name, t)
	start := wk.w.now()
	le, err := wk.n.locks.Acquire(ctx, name, t)
	done()
	wk.returned(ctx, k, t, start, err)
	if err == nil {
		wk.hold(wk.w.grant(k, wk.n, wk.name, le, t), le, t)
	}
}

// returned checks how a call ended: in time, and with an error that says that nothing ran.
func (wk *worker) returned(ctx context.Context, k *keyState, t lockcore.Terms, start time.Duration, err error) {
	took := wk.w.now() - start
	wk.w.note(k, "%s waited %v of %v: %v", wk.name, took, t.Wait, err)
	if err != nil && !errors.Is(err, lockcore.ErrNotRun) {
		wk.w.fail("errors", k.name, "%s: %v is not ErrNotRun", wk.name, err)
	}
	if err != nil && errors.Is(err, lockcore.ErrClosed) {
		wk.w.fail("errors", k.name, "%s: %v", wk.name, err)
	}
	if t.Wait != lockcore.Forever && took > max(t.Wait, 0)+slack {
		wk.w.fail("I12", k.name, "%s waited %v of %v", wk.name, took, t.Wait)
	}
	if end, ok := ctx.Deadline(); ok && time.Since(end) > slack {
		wk.w.fail("I12", k.name, "%s returned %v after its ctx had ended", wk.name, time.Since(end))
	}
}

func (wk *worker) hold(ten *tenure, le *lockcore.Lease, t lockcore.Terms) {
	r := wk.rng
	var inner *lockcore.Lease
	if r.chance(15) {
		inner = wk.nest(ten, le)
	}
	if r.chance(10) || t.NoRenew && r.chance(40) {
		wk.extend(ten, le)
	}
	wk.handle(ten)
	if inner != nil && r.chance(70) {
		wk.giveBack(ten, inner)
		inner = nil
		sleep(ten.ctx, r.between(0, 500*time.Millisecond))
		wk.judged(ten)
	}
	wk.giveBack(ten, le)
	if inner != nil {
		sleep(ten.ctx, r.between(0, time.Second))
		wk.judged(ten)
		wk.giveBack(ten, inner)
	}
}

// handle is the handler: it takes its time and mostly obeys its ctx.
func (wk *worker) handle(ten *tenure) {
	r, d := wk.rng, time.Duration(0)
	switch {
	case r.chance(70):
		d = r.between(0, 200*time.Millisecond)
	case r.chance(70):
		d = r.between(200*time.Millisecond, 2*time.Second)
	default:
		d = r.between(2*time.Second, 12*time.Second)
	}
	sleep(ten.ctx, d)
	wk.judged(ten)
	if ten.ctx.Err() != nil && r.chance(30) {
		time.Sleep(r.between(0, 7*time.Second)) // it does not obey
	}
}

// judged lets the oracle look at the server before a canceled handler releases.
func (wk *worker) judged(ten *tenure) {
	if ten.ctx.Err() != nil {
		<-ten.checked
	}
}

func (wk *worker) giveBack(ten *tenure, le *lockcore.Lease) {
	ctx, start := ten.ctx, wk.w.now()
	wk.w.release(ten)
	err := le.Release(ctx)
	wk.w.note(ten.key, "%s released %d: %v", wk.name, le.Token(), err)
	if took := wk.w.now() - start; took > time.Second+100*time.Millisecond {
		wk.w.fail("I12", ten.key.name, "%s: Release took %v", wk.name, took)
	}
}

// nest asks for the key again from inside.
func (wk *worker) nest(ten *tenure, le *lockcore.Lease) *lockcore.Lease {
	inner, err := wk.n.locks.Acquire(le.Context(), le.Key(), lockcore.Terms{Wait: lockcore.NoWait})
	switch {
	case err != nil && ten.ctx.Err() == nil:
		wk.w.fail("re-entry", ten.key.name, "%s was refused: %v", wk.name, err)
	case err == nil && inner.Token() != ten.token:
		wk.w.fail("re-entry", ten.key.name, "%s has token %d inside and %d outside", wk.name, inner.Token(), ten.token)
	case err == nil:
		wk.w.reenter(ten)
	}
	return inner
}

func (wk *worker) extend(ten *tenure, le *lockcore.Lease) {
	d := wk.rng.between(time.Second, 8*time.Second)
	wk.w.extend(ten, d)
	err := le.Extend(ten.ctx, d)
	wk.w.note(ten.key, "%s extended %d by %v: %v", wk.name, ten.token, d, err)
}
