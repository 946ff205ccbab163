package lockcore

import (
	"container/heap"
	"context"
	rnd "math/rand/v2"
	"sync"
	"time"
)

const (
	batchKeys   = 1000 // leases in one round trip
	minPassTime = 100 * time.Millisecond
)

// watchdog renews every lease of a Locker. There is no goroutine while nothing is due: one timer stands at the earliest
// renewal, and each batch that is due has a goroutine for as long as it is under way. A lease is in the heap or in one
// batch, never in both; a batch that hangs holds up nobody else.
//
// The race with a release is decided by grant.cause: a renewal that is under way then matches a hold-id that is gone or
// about to go, and its answer is ignored.
type watchdog struct {
	l *Locker

	mu      sync.Mutex
	zero    time.Time // of its clock
	due     dueHeap
	timer   *time.Timer
	stopped bool
}

// clockLocked is a moment in a third of the memory, by the monotonic clock.
func (w *watchdog) clockLocked() time.Duration {
	if w.zero.IsZero() {
		w.zero = time.Now()
	}
	return time.Since(w.zero)
}

func (w *watchdog) add(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	g.kept = true
	w.pushLocked(g, jitter(g.terms.Lease/3)-elapsed(g.sent)) // a slow answer has used up some of the lease
}

func (w *watchdog) pushLocked(g *grant, in time.Duration) {
	g.due = w.clockLocked() + in
	heap.Push(&w.due, g)
	if g.index == 0 {
		w.setLocked()
	}
}

func (w *watchdog) setLocked() {
	in := max(w.due[0].due-w.clockLocked(), 0)
	if w.timer == nil {
		w.timer = time.AfterFunc(in, w.pass)
	} else {
		w.timer.Reset(in)
	}
}

// remove forgets a lease. The timer may fire for nothing once.
func (w *watchdog) remove(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	g.kept = false
	if g.index >= 0 {
		heap.Remove(&w.due, int(g.index))
	}
}

// now makes a lease due: at once, or when the renewal under way has its answer, which may be older than the reason.
func (w *watchdog) now(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.index < 0 {
		g.poked = g.kept
	} else if !w.stopped {
		g.due = w.clockLocked()
		heap.Fix(&w.due, int(g.index))
		w.setLocked()
	}
}

// introduce makes a grant due soon, so that Redis learns who holds the key after a hand-over.
func (w *watchdog) introduce(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if due := w.clockLocked() + introduction; g.index >= 0 && !w.stopped && due < g.due {
		g.due = due
		heap.Fix(&w.due, int(g.index))
		w.setLocked()
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// pass takes whatever is due, or will be before a tenth of its period is over, and renews it in batches.
func (w *watchdog) pass() {
	if !w.l.begin() {
		return
	}
	defer w.l.wg.Done()
	w.mu.Lock()
	var all []*grant
	now := w.clockLocked()
	for len(w.due) > 0 && !w.stopped && w.due[0].due-now <= w.due[0].terms.Lease/30 {
		g := heap.Pop(&w.due).(*grant) //nolint:errcheck,forcetypeassert // dueHeap holds nothing else
		if g.live() {                  // it may have ended before it was added
			all = append(all, g)
		}
	}
	if len(w.due) > 0 && !w.stopped {
		w.setLocked()
	}
	w.mu.Unlock()
	if len(all) == 0 {
		return
	}
	w.l.wake.start() // a lease that lives this long can be revoked: then it is told at once
	var batches sync.WaitGroup
	for _, batch := range w.l.conn.batches(w.l.base, all) {
		batches.Go(func() { w.renew(batch) }) //planted:renew-batch
	}
	batches.Wait()
}

// renew renews one batch and puts what is still kept back into the heap.
func (w *watchdog) renew(batch []*grant) {
	start := time.Now()
	limit := w.l.terms.Lease
	for _, g := range batch {
		g.mu.Lock()
		h := g.h
		limit = min(limit, g.lease/6, g.lease-elapsed(g.sent))
		g.mu.Unlock()
		if h != nil {
			h.checkOverrun()
		}
	}
	ctx, cancel := context.WithTimeout(w.l.base, max(limit, minPassTime))
	defer cancel()
	p := RenewPass{Leases: len(batch)}
	for i, answer := range w.l.conn.renew(ctx, batch) {
		g := batch[i]
		switch {
		case answer.err != nil:
			p.Failed++
			g.unanswered(answer.err)
			w.again(g, jitter(g.terms.Lease/20)) //planted:renew-again
		case answer.kept == 1:
			p.Kept++
			g.renewed(start, g.terms.Lease, answer.holder) //planted:renewed-from
			w.again(g, jitter(g.terms.Lease/3))
		default:
			p.Gone++
			g.lose(verdict(answer.kept))
		}
	}
	p.Took = time.Since(start)
	w.l.Report(w.l.base, p)
}

func (w *watchdog) again(g *grant, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.poked {
		g.poked, in = false, 0
	}
	if g.kept && !w.stopped {
		w.pushLocked(g, in)
	}
}

// jitter spreads renewals by a tenth, so that leases taken together do not stay together.
func jitter(d time.Duration) time.Duration {
	return d*9/10 + time.Duration(rnd.Int64N(int64(d)/5+1))
}

// dueHeap orders leases by their next renewal.
type dueHeap []*grant

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].due < d[j].due }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = int32(i), int32(j)
}

func (d *dueHeap) Push(x any) {
	g := x.(*grant) //nolint:errcheck,forcetypeassert // only the watchdog pushes
	g.index = int32(len(*d))
	*d = append(*d, g)
}

func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	g := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	g.index = -1
	return g
}
