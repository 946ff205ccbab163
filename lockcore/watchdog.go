package lockcore

import (
	"container/heap"
	"context"
	rnd "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	batchKeys   = 1000 // leases in one round trip
	minPassTime = 100 * time.Millisecond
)

// watchdog renews every lease of a Locker. There is no goroutine while nothing is due: one timer stands at the earliest
// renewal, and each batch that is due has a goroutine for as long as it is under way. A lease is in the heap or in one
// batch, never in both; a batch that hangs holds up nobody else.
//
// The race with a release is decided by hold.closed: a renewal that is under way then matches a hold-id that is gone or
// about to go, and its answer is ignored.
type watchdog struct {
	l *Locker

	mu      sync.Mutex
	due     dueHeap
	timer   *time.Timer
	stopped bool
}

func (w *watchdog) add(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	h.kept = true
	w.pushLocked(h, jitter(h.terms.Lease/3)-elapsed(h.sent)) // a slow answer has used up some of the lease
}

func (w *watchdog) pushLocked(h *hold, in time.Duration) {
	h.due = time.Now().Add(in)
	heap.Push(&w.due, h)
	if h.index == 0 {
		w.setLocked()
	}
}

func (w *watchdog) setLocked() {
	in := max(time.Until(w.due[0].due), 0)
	if w.timer == nil {
		w.timer = time.AfterFunc(in, w.pass)
	} else {
		w.timer.Reset(in)
	}
}

// remove forgets a lease. The timer may fire for nothing once.
func (w *watchdog) remove(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	h.kept = false
	if h.index >= 0 {
		heap.Remove(&w.due, h.index)
	}
}

// now makes a lease due: at once, or when the renewal under way has its answer, which may be older than the reason.
func (w *watchdog) now(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.index < 0 {
		h.poked = h.kept
	} else if !w.stopped {
		h.due = time.Now()
		heap.Fix(&w.due, h.index)
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
	var all []*hold
	for len(w.due) > 0 && !w.stopped && time.Until(w.due[0].due) <= w.due[0].terms.Lease/30 {
		h := heap.Pop(&w.due).(*hold) //nolint:errcheck,forcetypeassert // dueHeap holds nothing else
		if h.running() {              // it may have ended before it was added
			all = append(all, h)
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
		batches.Go(func() { w.renew(batch) })
	}
	batches.Wait()
}

// renew renews one batch and puts what is still kept back into the heap.
func (w *watchdog) renew(batch []*hold) {
	start := time.Now()
	limit := w.l.terms.Lease
	for _, h := range batch {
		h.checkOverrun()
		h.mu.Lock()
		limit = min(limit, h.lease/6, h.lease-elapsed(h.sent))
		h.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(w.l.base, max(limit, minPassTime))
	defer cancel()
	p := RenewPass{Leases: len(batch)}
	for i, answer := range w.l.conn.renew(ctx, batch) {
		h := batch[i]
		switch {
		case answer.err != nil:
			p.Failed++
			h.unanswered(answer.err)
			w.again(h, jitter(h.terms.Lease/20))
		case answer.kept == 1:
			p.Kept++
			h.renewed(start, h.terms.Lease)
			w.again(h, jitter(h.terms.Lease/3))
		default:
			p.Gone++
			h.lose(verdict(answer.kept))
		}
	}
	p.Took = time.Since(start)
	w.l.Report(w.l.base, p)
}

func (w *watchdog) again(h *hold, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.poked {
		h.poked, in = false, 0
	}
	if h.kept && !w.stopped {
		w.pushLocked(h, in)
	}
}

// jitter spreads renewals by a tenth, so that leases taken together do not stay together.
func jitter(d time.Duration) time.Duration {
	return d*9/10 + time.Duration(rnd.Int64N(int64(d)/5+1))
}

// renewal is the answer for one lease.
type renewal struct {
	kept int64
	err  error
}

// batches groups leases so that one slow or dead server holds up only its own: by node in a cluster, and by size.
func (c *conn) batches(ctx context.Context, all []*hold) [][]*hold {
	byNode := map[string][]*hold{}
	cluster, _ := c.keep.(*redis.ClusterClient)
	for _, h := range all {
		node := ""
		if cluster != nil {
			if n, err := cluster.MasterForKey(ctx, h.keys[0]); err == nil {
				node = n.Options().Addr
			}
		}
		byNode[node] = append(byNode[node], h)
	}
	var out [][]*hold
	for _, hs := range byNode {
		for len(hs) > batchKeys {
			out = append(out, hs[:batchKeys])
			hs = hs[batchKeys:]
		}
		out = append(out, hs)
	}
	return out
}

// renew sends one batch in one round trip, and what the server has forgotten the script for once more in full.
func (c *conn) renew(ctx context.Context, batch []*hold) []renewal {
	per := scriptBlock
	if !c.single {
		per = 1 // keys of one script must share a slot
	}
	v, err := c.bounded(ctx, func() (any, error) {
		res := make([]renewal, len(batch))
		c.renewBy(ctx, batch, per, res, renewScript.EvalSha)
		for _, r := range res {
			if r.err != nil && redis.HasErrorPrefix(r.err, "NOSCRIPT") {
				c.renewBy(ctx, batch, per, res, renewScript.Eval)
				break
			}
		}
		return res, nil
	})
	if res, ok := v.([]renewal); ok && err == nil {
		return res
	}
	res := make([]renewal, len(batch))
	for i := range res {
		res[i].err = err
	}
	return res
}

// evalFunc is Script.EvalSha or Script.Eval.
type evalFunc func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (c *conn) renewBy(ctx context.Context, batch []*hold, per int, res []renewal, eval evalFunc) {
	pipe := c.keep.Pipeline()
	var cmds []*redis.Cmd
	for part := range slices.Chunk(batch, per) {
		keys, args := make([]string, 0, len(part)), make([]any, 0, 3*len(part))
		for _, h := range part {
			keys = append(keys, h.keys[0])
			args = append(args, h.id, micros(h.terms.Lease), h.retention(h.terms.Lease))
		}
		cmds = append(cmds, eval(ctx, pipe, keys, args...))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for n, cmd := range cmds {
		kept, err := cmd.Int64Slice()
		for i := range min(per, len(batch)-n*per) {
			r := renewal{err: err}
			if err == nil && i < len(kept) {
				r.kept = kept[i]
			}
			res[n*per+i] = r
		}
	}
}

// dueHeap orders leases by their next renewal.
type dueHeap []*hold

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].due.Before(d[j].due) }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *dueHeap) Push(x any) {
	h := x.(*hold) //nolint:errcheck,forcetypeassert // only the watchdog pushes
	h.index = len(*d)
	*d = append(*d, h)
}

func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	h := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	h.index = -1
	return h
}
