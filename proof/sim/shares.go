package sim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// sharedKey is a key whose shares are judged: readers and writers, or permits and writers. Its data
// is never lost.
type sharedKey struct {
	name  string
	limit int // of its shares

	mu    sync.Mutex
	in    map[*visit]struct{}
	token int64
	alone bool // token is that of a hold of the key alone
}

// visit is a hold of a shared key, from the return of its acquire until Release is called.
type visit struct {
	who   string
	terms testcall.Call
	ctx   context.Context //nolint:containedctx // the handler's
}

// permits is the limit of the second key.
const permits = 3

func newSharedKeys() []*sharedKey {
	return []*sharedKey{
		{name: "readers", limit: lockcore.Unlimited, in: map[*visit]struct{}{}},
		{name: "permits", limit: permits, in: map[*visit]struct{}{}},
	}
}

// share acquires a shared key, mostly beside others, and sometimes alone. Sometimes several calls
// of the process do so at once.
func (wk *worker) share() {
	k := wk.w.shared[wk.rng.IntN(len(wk.w.shared))]
	if !wk.rng.chance(20) {
		wk.visit(k)
		return
	}
	var all sync.WaitGroup
	for range 2 + wk.rng.IntN(8) {
		one := *wk
		one.rng = wk.w.rng(wk.name, int(wk.rng.Int64N(1<<40)))
		all.Go(func() {
			for range 1 + one.rng.IntN(5) {
				one.visit(k)
			}
		})
	}
	all.Wait()
}

func (wk *worker) visit(k *sharedKey) {
	t := wk.call()
	t.Lease, t.MinHold = 2*time.Second, 0 // most calls have the same terms, because only such calls share a lease
	if wk.rng.chance(20) {
		t.Lease = wk.rng.between(time.Second, 4*time.Second)
	}
	if wk.rng.chance(5) {
		t.MinHold = wk.rng.between(time.Millisecond, time.Second)
	}
	if !wk.rng.chance(15) {
		if t.Limit.N = k.limit; k.limit != lockcore.Unlimited {
			t.Limit.Weight = 1 + wk.rng.IntN(permits)
		}
	}
	wt := wk.caller(t)
	defer wt.cancel()
	began := wk.w.now()
	le, err := t.Acquire(wt.ctx, wk.n.locks, k.name)
	took := wk.w.now() - began
	switch {
	case t.Wait != lockcore.Forever && took > max(t.Wait, 0)+slack:
		wk.w.fail("I12", "", "%s waited %v of %v for %s", wk.name, took, t.Wait, k.name)
	case err != nil && (!errors.Is(err, lockcore.ErrNotRun) || errors.Is(err, lockcore.ErrClosed)):
		wk.w.fail("errors", "", "%s: %v", wk.name, err)
	}
	if err != nil {
		return
	}
	v := wk.w.enter(k, wk.name, t, le)
	sleep(v.ctx, wk.section())
	if v.ctx.Err() == nil && wk.rng.chance(10) {
		wk.upgrade(k, t, le)
	}
	if v.ctx.Err() != nil && wk.rng.chance(30) {
		time.Sleep(wk.rng.between(0, 7*time.Second)) // it ignores the end of its ctx
	}
	k.mu.Lock()
	delete(k.in, v)
	k.mu.Unlock()
	_ = le.Release(wt.ctx)
}

// upgrade makes a nested call for the key alone. Inside a share it must be refused at once.
func (wk *worker) upgrade(k *sharedKey, t testcall.Call, le *lockcore.Lease) {
	inner, err := wk.n.locks.Acquire(le.Context(), k.name, lockcore.Terms{Wait: time.Minute})
	if t.Alone() && err != nil && le.Context().Err() == nil || !t.Alone() && err == nil ||
		!t.Alone() && !errors.Is(err, lockcore.ErrUpgrade) && le.Context().Err() == nil {
		wk.w.fail("re-entry", "", "%s: a call for %s alone inside limit %d: %v", wk.name, k.name, t.Limit.N, err)
	}
	if err == nil {
		_ = inner.Release(le.Context())
	}
}

// enter judges a new hold. I1: no hold of the key alone is beside another, and the weights are at
// most the limit. I3: tokens grow, and only shares have the same.
func (w *world) enter(k *sharedKey, who string, t testcall.Call, le *lockcore.Lease) *visit {
	v := &visit{who: who, terms: t, ctx: le.Context()}
	k.mu.Lock()
	defer k.mu.Unlock()
	weight, others := t.Weight(), 0
	for o := range k.in {
		if o.ctx.Err() != nil {
			continue
		}
		others++
		weight += o.terms.Weight()
		if (t.Alone() || o.terms.Alone()) && v.ctx.Err() == nil {
			w.fail("I1", "", "%s got %s with limit %d while %s has it with limit %d", who, k.name, t.Limit.N, o.who, o.terms.Limit.N)
		}
	}
	if t.Limit.N > 0 && weight > k.limit && v.ctx.Err() == nil {
		w.fail("I1", "", "%s got %s: the weights are %d of %d", who, k.name, weight, k.limit)
	}
	token, alone := le.Token(), t.Alone()
	if v.ctx.Err() == nil && (token < k.token || token == k.token && (alone || k.alone)) {
		w.fail("I3", "", "%s got token %d of %s with limit %d after %d", who, token, k.name, t.Limit.N, k.token)
	}
	if token >= k.token {
		k.token, k.alone = token, alone
	}
	k.in[v] = struct{}{}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !alone {
		w.stats.Shares++
		w.stats.Beside = max(w.stats.Beside, others)
	}
	return v
}

// serveShared checks that the shared keys recover without faults. Each process gets each of them
// alone. Then no data is left but the last token.
func (w *world) serveShared() {
	for _, k := range w.shared {
		for _, n := range w.nodes() {
			start := w.now()
			le, err := n.locks.Acquire(w.t.Context(), k.name, lockcore.Terms{Lease: time.Second, Wait: 10 * time.Second})
			if err != nil {
				w.fail("I6", "", "process %d does not get %s in the end: %v", n.index, k.name, err)
				continue
			}
			if took := w.now() - start; took > 5*time.Second { // the longest lease, and a little more
				w.fail("I6", "", "process %d got %s in the end after %v", n.index, k.name, took)
			}
			_ = le.Release(w.t.Context())
		}
	}
}

// sharedLeft checks that no share and no waiter is left. What a process has said of its waiting calls
// ends by itself, after 15 s.
func (w *world) sharedLeft() {
	for _, name := range w.servers[0].Redis.Keys() {
		for _, k := range w.shared {
			if rest, of := strings.CutPrefix(name, "holdfast:2:x:{"+k.name+"}:"); of && !strings.HasPrefix(rest, "q:") {
				w.fail("I8", "", "%s is left", name)
			}
		}
	}
}
