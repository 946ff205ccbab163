package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// slack is the time that a call may exceed its Wait: the time of a command that gets no reply.
const slack = 2500 * time.Millisecond

// worker is a goroutine of a process that acquires keys.
type worker struct {
	w    *world
	slot *atomic.Pointer[node]
	n    *node // the process of the current turn
	rng  rng
	name string
	rush bool // acquires the key again and again, and does nothing else
}

// worker returns worker i of a kind. The workers are spread over the processes.
func (w *world) worker(kind string, i int) *worker {
	slot := i % len(w.slots)
	return &worker{w: w, slot: &w.slots[slot], rng: w.rng(kind, i), name: fmt.Sprintf("%d.%c%d", slot, kind[0], i)}
}

func (wk *worker) loop(ctx context.Context, turn func()) {
	for ctx.Err() == nil {
		wk.n = wk.slot.Load()
		turn()
		sleep(ctx, wk.rng.between(0, 1500*time.Millisecond))
	}
}

// call returns a call with random terms with a short lease.
func (wk *worker) call() testcall.Call {
	r := wk.rng
	t := testcall.Call{Fixed: r.chance(25), Terms: lockcore.Terms{Lease: r.between(time.Second, 5*time.Second)}}
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
	switch {
	case r.chance(10):
		t.MaxHold = r.between(50*time.Millisecond, 4*time.Second)
	case r.chance(10): // lost in the middle of a batch
		t.MaxHold = r.between(500*time.Microsecond, 3*time.Millisecond)
	}
	if r.chance(15) {
		t.MaxWaiting = 1 + r.IntN(3)
	}
	return t
}

// equal gives most calls for a key the same terms, because only such calls hand it off to each
// other.
func (wk *worker) equal(i int, t testcall.Call) testcall.Call {
	if wk.rush || wk.rng.chance(80) {
		t.Lease, t.Fixed = wk.w.leases[i], i == 2
	}
	if wk.rush {
		t.Wait, t.MaxHold = time.Minute, 0
	}
	return t
}

// caller returns the next call. Some calls are canceled while they wait or hold, and a few while
// their first request is under way.
func (wk *worker) caller(t testcall.Call) *waiter {
	wt := &waiter{n: wk.n, who: wk.name, terms: t}
	switch {
	case wk.rush:
		wt.ctx, wt.cancel = context.WithCancel(wk.n.life)
	case wk.rng.chance(10):
		wt.ctx, wt.cancel = context.WithTimeout(wk.n.life, wk.rng.between(0, 6*time.Second))
	case wk.rng.chance(5):
		wt.ctx, wt.cancel = context.WithTimeout(wk.n.life, wk.rng.between(0, 6*time.Millisecond))
	default:
		wt.ctx, wt.cancel = context.WithCancel(wk.n.life)
	}
	return wt
}

// exclusive acquires one key, holds it for a while, and releases it. Sometimes several calls do so
// at once.
func (wk *worker) exclusive() {
	i := wk.rng.IntN(wk.w.c.Keys)
	if wk.rng.chance(12) {
		wk.burst(i)
		return
	}
	wk.take(i, wk.section())
}

// burst makes several calls of the process acquire key i at once, several times in a row. Some
// bursts have more holds than a batch may have.
func (wk *worker) burst(i int) {
	rounds := 1 + wk.rng.IntN(5)
	top := time.Duration(wk.rng.IntN(3)) * time.Millisecond / 2
	rush := wk.rng.chance(3)
	if rush {
		rounds, top = 300, 0
	}
	var all sync.WaitGroup
	for j := range 2 + wk.rng.IntN(6) {
		one := *wk
		one.rush = rush
		one.rng, one.name = rng{rand.New(rand.NewPCG(wk.rng.Uint64(), uint64(j)))}, fmt.Sprintf("%s/%d", wk.name, j)
		all.Go(func() {
			for range rounds {
				if !one.take(i, one.rng.between(0, top)) {
					return
				}
			}
		})
	}
	all.Wait()
}

// take reports whether it acquired key i.
func (wk *worker) take(i int, section time.Duration) bool {
	name, t := exclusiveKey(i), wk.equal(i, wk.call())
	wt, k := wk.caller(t), wk.w.key(name)
	defer wt.cancel()
	wk.w.wait(k, wt)
	le, err := t.Acquire(wt.ctx, wk.n.locks, name)
	wk.returned(k, wt, err)
	if err == nil {
		wk.hold(wk.w.grant(k, wt, le), le, t, section)
	}
	return err == nil
}

// returned checks that a call ended in time, and that an error is ErrNotRun.
func (wk *worker) returned(k *keyState, wt *waiter, err error) {
	wk.w.noWaiter(k, wt)
	took, t := wk.w.now()-wt.since, wt.terms
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
	if end, ok := wt.ctx.Deadline(); ok && time.Since(end) > slack {
		wk.w.fail("I12", k.name, "%s returned %v after its ctx had ended", wk.name, time.Since(end))
	}
	if at := time.Duration(wt.canceled.Load()); at > 0 && wk.w.now()-at > slack {
		wk.w.fail("I12", k.name, "%s returned %v after it was canceled", wk.name, wk.w.now()-at)
	}
	wk.startle(k)
}

func (wk *worker) hold(ten *hold, le *lockcore.Lease, t testcall.Call, section time.Duration) {
	r := wk.rng
	if ten.handed {
		wk.n.mayDie()
	}
	var inner *lockcore.Lease
	if !wk.rush && r.chance(15) {
		inner = wk.nest(ten, le)
	}
	if !wk.rush && (r.chance(10) || t.Fixed && r.chance(40)) {
		wk.extend(ten, le)
	}
	wk.handle(ten, section)
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

// section returns the duration of a handler.
func (wk *worker) section() time.Duration {
	r := wk.rng
	switch {
	case r.chance(40):
		return r.between(0, time.Millisecond)
	case r.chance(10):
		return 0
	default:
		return wk.long()
	}
}

func (wk *worker) long() time.Duration {
	r := wk.rng
	switch {
	case r.chance(70):
		return r.between(0, 200*time.Millisecond)
	case r.chance(70):
		return r.between(200*time.Millisecond, 2*time.Second)
	default:
		return r.between(2*time.Second, 12*time.Second)
	}
}

// handle is the handler. In most cases it returns after its ctx has ended.
func (wk *worker) handle(ten *hold, d time.Duration) {
	r := wk.rng
	if d > 0 {
		sleep(ten.ctx, d)
	}
	wk.judged(ten)
	if ten.ctx.Err() != nil && r.chance(30) {
		time.Sleep(r.between(0, 7*time.Second)) // it ignores the end of its ctx
	}
}

// judged waits until the oracle has read the server, before a canceled handler releases.
func (wk *worker) judged(ten *hold) {
	if ten.ctx.Err() != nil {
		<-ten.checked
	}
}

func (wk *worker) giveBack(ten *hold, le *lockcore.Lease) {
	ctx, start := ten.ctx, wk.w.now()
	wk.w.release(ten)
	wk.startle(ten.key)
	err := le.Release(ctx)
	wk.w.note(ten.key, "%s released %d: %v", wk.name, le.Token(), err)
	if took := wk.w.now() - start; took > time.Second+100*time.Millisecond {
		wk.w.fail("I12", ten.key.name, "%s: Release took %v", wk.name, took)
	}
}

// nest makes a nested call.
func (wk *worker) nest(ten *hold, le *lockcore.Lease) *lockcore.Lease {
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

func (wk *worker) extend(ten *hold, le *lockcore.Lease) {
	d := wk.rng.between(time.Second, 8*time.Second)
	wk.w.extend(ten, d)
	err := le.Extend(ten.ctx, d)
	wk.w.note(ten.key, "%s extended %d by %v: %v", wk.name, ten.token, d, err)
}
