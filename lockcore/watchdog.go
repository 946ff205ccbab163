package lockcore

import (
	"container/heap"
	"context"
	rnd "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	batchKeys   = 1000                   // maximum number of leases in one round trip
	minPassTime = 100 * time.Millisecond // minimum timeout of a batch, and the timeout of Route
	maxTryTime  = 30 * time.Second       // maximum timeout of a batch: a later reply counts as lost
	maxTries    = 6                      // maximum number of renewals of one lease in flight
	maxPause    = 5 * time.Second        // longest pause after an error
)

// watchdog renews every lease of a Locker. No goroutine runs while no renewal is due, because one
// timer is set to the earliest renewal. Each batch that is due has a goroutine while it is in
// flight. A batch that hangs delays no other batch.
//
// A lease stays in the heap while renewals of it are in flight. If a renewal has no reply after a
// sixth of the lease, another one is sent beside it, on another connection. The first renewal is
// sent after a tenth of the lease at the earliest, and the others at least 2/15 apart. So maxTries
// renewals last until the last quarter of the lease. If the network works again before the last
// third, the lease is kept, even if all earlier renewals were lost. Only urgent renewals may use
// them up earlier.
//
// If the replies are late because the process is overloaded, more renewals would make that worse.
// Two rules limit that. At most batchKeys renewals, or a tenth of the number of leases if that is
// more, are in flight beside another one of their lease. lag shortens the period only if the leases
// of the Locker fit into one batch.
//
// A late reply counts while the lease is valid. Each renewal extends the lease from the time of its
// send, so replies may arrive in any order. No reply revives a lease that has ended, because
// grant.renewed checks grant.cause.
//
// grant.cause also decides the race with a release. A renewal in flight then has the id of a grant
// that is deleted or will be, and its reply is ignored. stop ends all renewals in flight.
type watchdog struct {
	l *Locker

	ctx    context.Context //nolint:containedctx // of all renewals; ends with stop
	cancel context.CancelFunc

	mu      sync.Mutex
	zero    time.Time // the start of clockLocked
	due     dueHeap[*grant]
	timer   *time.Timer
	extra   int           // renewals in flight beside another one of the same lease
	lag     time.Duration // the longest recent time from a due renewal to its reply
	stopped bool
}

// clockLocked returns the monotonic time since zero. A time.Duration takes a third of the memory of
// a time.Time.
func (w *watchdog) clockLocked() time.Duration { return time.Since(w.zero) }

// add adds a lease. now may be slightly in the past, which only makes the first renewal due
// earlier.
func (w *watchdog) add(g *grant, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	took := between(g.sent, now) // a slow reply used up a part of the lease, and the first renewal may be as slow
	w.lagLocked(took)
	w.pushLocked(g, now.Sub(w.zero)+w.periodLocked(g.leaseTerm)-took)
}

// lagLocked updates lag with the duration of one round trip. Without longer ones, lag decreases by
// an eighth each time.
func (w *watchdog) lagLocked(took time.Duration) { w.lag = max(took, w.lag-w.lag/8) }

// periodLocked returns how long after the send of the last renewal the next one is due: a third of
// the lease minus lag. At most a sixth of the lease is subtracted. If the process lacks CPU time,
// lag is large. With more than batchKeys leases, lag does not count.
func (w *watchdog) periodLocked(lease time.Duration) time.Duration {
	if len(w.due) > batchKeys {
		return jitter(lease / 3)
	}
	return jitter(lease/3) - min(w.lag, lease/6)
}

func (w *watchdog) pushLocked(g *grant, due time.Duration) {
	g.due = due
	heap.Push(&w.due, g)
	if g.index == 1 {
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

// remove removes a lease from the heap. The timer may fire once without work.
func (w *watchdog) remove(g *grant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if g.index > 0 {
		heap.Remove(&w.due, int(g.index-1))
	}
}

// renewNow makes a lease due at once. The reply of a renewal in flight does not change that,
// because that renewal may be older than the reason for renewNow.
func (w *watchdog) renewNow(g *grant) { w.dueIn(g, 0) }

// publishSoon makes a grant due after publishAfter, so that Redis receives the holder text after a
// hand-off.
func (w *watchdog) publishSoon(g *grant) { w.dueIn(g, publishAfter) }

// check makes leases due at once, except those that were renewed by a renewal sent after since. A
// fixed lease then stays in the heap until its state was read.
func (w *watchdog) check(all []*grant, since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range all {
		if !g.renewedSince(since) {
			w.dueInLocked(g, 0)
		}
	}
}

func (w *watchdog) dueIn(g *grant, in time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dueInLocked(g, in)
}

func (w *watchdog) dueInLocked(g *grant, in time.Duration) {
	if g.index == 0 && g.fixed && in == 0 && !w.stopped && g.live() {
		w.pushLocked(g, w.clockLocked())
		g.urgent = true
	}
	if due := w.clockLocked() + in; g.index > 0 && !w.stopped && due < g.due {
		g.due, g.urgent = due, true
		heap.Fix(&w.due, int(g.index-1))
		w.setLocked()
	}
}

func (w *watchdog) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.cancel()
	if w.timer != nil {
		w.timer.Stop()
	}
}

// pass renews all leases that are due, in batches.
func (w *watchdog) pass() {
	if !w.l.startWorker() {
		return
	}
	defer w.l.wg.Done()
	all, waited := w.take()
	if len(all) == 0 {
		return
	}
	var batches sync.WaitGroup
	for _, batch := range w.batches(all) {
		batches.Go(func() { w.renew(batch, waited) }) //planted:renew-batch
	}
	batches.Wait()
}

// batches divides leases into batches, by server and by size, so that a slow or dead server delays
// only its own leases. It waits at most minPassTime for the routes. It rarely waits, because the
// acquires of the leases needed the same routes.
func (w *watchdog) batches(all []*grant) [][]*grant {
	keys := make([]*backend.Key, len(all))
	for i, g := range all {
		keys[i] = &g.queue.key
	}
	ctx, cancel := context.WithTimeout(w.ctx, minPassTime)
	defer cancel()
	byServer := map[string][]*grant{}
	for i, server := range w.l.backend.Route(ctx, keys) {
		byServer[server] = append(byServer[server], all[i])
	}
	var out [][]*grant
	for _, gs := range byServer {
		out = slices.AppendSeq(out, slices.Chunk(gs, batchKeys))
	}
	return out
}

// take returns the leases that are due, or will be due within a thirtieth of their lease, and how
// late the first of them is. Each lease stays in the heap. It is due again if its renewal gets no
// reply within a sixth of the lease.
func (w *watchdog) take() (all []*grant, late time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, most := w.clockLocked(), max(batchKeys, len(w.due)/10)
	var putOff []*grant // added to the heap after the loop, because the loop would take a long lease again
	for len(w.due) > 0 && !w.stopped && w.due[0].due-now <= w.due[0].leaseTerm/30 {
		g := heap.Pop(&w.due).(*grant) //nolint:errcheck,forcetypeassert // the heap holds nothing else
		if !g.live() {                 // it may have ended before it was added
			continue
		}
		switch {
		case g.renewing == maxTries: //planted:most-tries
		case g.renewing > 0 && w.extra >= most: // the renewals in flight may get a reply soon
			putOff = append(putOff, g)
			continue
		default:
			late = max(late, now-g.due)
			if g.renewing++; g.renewing > 1 {
				w.extra++
			}
			g.urgent = false
			all = append(all, g)
		}
		g.due = now + g.leaseTerm/6
		heap.Push(&w.due, g)
	}
	for _, g := range putOff {
		g.due = now + min(g.leaseTerm/12, maxPause)
		heap.Push(&w.due, g)
	}
	if len(w.due) > 0 && !w.stopped {
		w.setLocked()
	}
	return all, late
}

// renew renews one batch. late is how long ago its first lease was due. renew waits for the reply
// while that can be useful for any lease of the batch, at most maxTryTime.
func (w *watchdog) renew(batch []*grant, late time.Duration) {
	start := time.Now()
	useful := minPassTime
	for _, g := range batch {
		g.mu.Lock()
		useful = max(useful, g.leftLocked(start)) //planted:late-reply
		g.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(w.ctx, min(useful, maxTryTime))
	defer cancel()
	p := event.RenewPass{Leases: len(batch)}
	replies, holders := w.send(ctx, batch)
	for i, reply := range replies {
		g := batch[i]
		switch {
		case reply.Err != nil:
			p.Failed++
			if !g.fixed {
				g.countNoReply(start, translate(reply.Err))
			}
		case reply.Verdict == backend.VerdictKept && g.fixed: // the state was only read
			p.Kept++
		case reply.Verdict == backend.VerdictKept:
			p.Kept++
			g.renewed(start, g.leaseTerm, holders[i]) //planted:renewed-from
		default:
			p.Gone++
			g.lose(lossOf(reply.Verdict))
		}
	}
	p.Took = time.Since(start)
	w.settle(batch, replies, start, late)
	for _, g := range batch { // last, because a slow Observer must not delay the renewal
		if h := g.holder(); h != nil && g.live() { // after a loss, the release decides whether the handler was late
			h.checkOverrun()
		}
	}
	if w.l.observer != nil {
		w.l.shielded(func() { w.l.report(w.l.base, p) })
	}
}

// send sends one batch. It returns a reply for each lease, and the hold whose holder text the
// backend has after a successful renewal.
//
// A request that publishes a new hold runs code of the user: the Observer and the Value method of a
// ctx. That code may hang. So another goroutine makes the requests, and send returns when ctx ends.
// The goroutine ends when that code returns, and nothing waits for it. A lease has at most maxTries
// batches in flight, and none after its end. So for each lease at most that many goroutines outlive
// their batches.
func (w *watchdog) send(ctx context.Context, batch []*grant) ([]backend.RenewReply, []*hold) {
	requests, holders := make([]backend.RenewRequest, len(batch)), make([]*hold, len(batch))
	made := make(chan struct{})
	go func() {
		for i, g := range batch {
			requests[i], holders[i] = g.renewRequest()
		}
		close(made)
	}()
	select {
	case <-made:
		return w.l.backend.Renew(ctx, requests), holders
	case <-ctx.Done(): // requests and holders belong to the goroutine
	}
	replies := make([]backend.RenewReply, len(batch))
	for i := range replies {
		replies[i].Err = context.Cause(ctx)
	}
	return replies, make([]*hold, len(batch))
}

// settle sets when the leases of a batch that was sent at start are due again.
func (w *watchdog) settle(batch []*grant, replies []backend.RenewReply, start time.Time, late time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	took := elapsed(start)
	now := w.clockLocked()
	if slices.ContainsFunc(replies, func(r backend.RenewReply) bool { return r.Err == nil }) {
		w.lagLocked(late + took)
	}
	for i, g := range batch {
		if g.renewing--; g.renewing > 0 {
			w.extra--
		}
		if g.index == 0 || g.urgent {
			continue // the lease has ended, or is due for a newer reason
		}
		if replies[i].Err == nil && g.fixed {
			if g.renewing == 0 { // otherwise a newer read decides
				heap.Remove(&w.due, int(g.index-1))
			}
			continue
		}
		due := g.due
		switch replies[i].Err {
		case nil:
			next := now - took + w.periodLocked(g.leaseTerm)
			if g.renewing == 0 || next > due { // otherwise another renewal has already made it due later
				due = next
			}
		default:
			if !g.renewedSince(start) {
				due = min(due, now+jitter(min(g.leaseTerm/20, maxPause))) //planted:renew-again
			}
		}
		g.due = due
		heap.Fix(&w.due, int(g.index-1))
	}
	if len(w.due) > 0 && !w.stopped {
		w.setLocked()
	}
}

// jitter changes d by up to a tenth, so that the renewals of leases that were acquired together
// spread out.
func jitter(d time.Duration) time.Duration {
	return d*9/10 + time.Duration(rnd.Int64N(int64(d)/5+1))
}
