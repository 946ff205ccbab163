package cleanup

import (
	"cmp"
	chain "container/list"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// send sends the entries of its lane until the lane is empty or paused, or the queue is stopped.
func (q *Queue) send(ln *lane) {
	defer q.senders.Done()
	for {
		batch := q.take(ln)
		q.Report()
		if len(batch) == 0 {
			return
		}
		if ln.node == "" {
			batch = q.route(batch)
		}
		if len(batch) > 0 {
			q.settle(ln, batch, q.cleanUp(batch))
		}
	}
}

// take removes the next batch from a lane. If the batch is empty, the sender must end.
func (q *Queue) take(ln *lane) (batch []*cleanup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(batch) < cleanupBatch && ln.ready.Len() > 0 && !ln.paused && !q.stopped {
		c := ln.ready.Remove(ln.ready.Front()).(*cleanup) //nolint:errcheck,forcetypeassert // it has nothing else
		c.in, c.at = nil, nil
		if !c.until.IsZero() && time.Now().After(c.until) {
			q.endLocked(c, cmp.Or(c.err, backend.ErrTooLate))
			continue
		}
		batch = append(batch, c)
	}
	if len(batch) == 0 {
		ln.senders--
	}
	return batch
}

// route moves entries of a cluster to the lanes of their servers. It returns the entries whose
// server is not known.
func (q *Queue) route(batch []*cleanup) (rest []*cleanup) {
	keys := make([]*backend.Key, len(batch))
	for i, c := range batch {
		keys[i] = c.key
	}
	ctx, cancel := context.WithTimeout(q.base, backend.CallTimeout)
	nodes := q.sender.Route(ctx, keys)
	cancel()
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, c := range batch {
		switch {
		case nodes[i] == "":
			rest = append(rest, c)
		case q.all[c.id] == c: // otherwise stop has ended the entry
			q.putLocked(q.laneLocked(nodes[i]), c)
		}
	}
	return rest
}

// settle ends the entries that the server has confirmed, and schedules another try for the others.
func (q *Queue) settle(ln *lane, batch []*cleanup, errs []error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	replied, pause := false, firstRetry
	for i, c := range batch {
		err, fate := errs[i], GiveUp
		if err != nil {
			fate = q.sender.After(err)
		}
		switch fate {
		case GiveUp:
			replied = true
			q.endLocked(c, err)
			continue
		case Refused:
			replied = true
		case MayTakeEffect:
			c.repeated = true
		case TryAgain:
		}
		if c.err != nil { // this was not the first try
			pause = cleanupRetry
		}
		c.err, c.in = err, &ln.failed
		c.at = c.in.PushBack(c) //planted:cleanup-tried-again
	}
	if replied {
		ln.fails = 0
	} else {
		ln.fails++
		ln.paused = true
	}
	if ln.fails > 1 {
		pause = cleanupRetry
	}
	if ln.failed.Len() > 0 && ln.timer == nil {
		ln.timer = time.AfterFunc(pause, func() { q.retry(ln) })
	}
	q.startLocked(ln)
}

// retry makes failed entries ready again. In a cluster their slots may have moved, so retry routes
// all entries of the lane again.
func (q *Queue) retry(ln *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ln.timer, ln.paused = nil, false
	if q.stopped {
		return
	}
	to, from := q.laneLocked(""), []*chain.List{&ln.failed}
	if to != ln {
		from = append(from, &ln.ready)
	}
	for _, from := range from {
		for e := from.Front(); e != nil; e = from.Front() {
			q.putLocked(to, from.Remove(e).(*cleanup)) //nolint:errcheck,forcetypeassert // it has nothing else
		}
	}
	q.startLocked(ln)
}

// entry returns the request to send. A key remembers 16 ended ids. During an outage, a process with
// many permits must not displace the ids that matter. So the id of a released share is remembered
// only if its acquire may arrive again.
func (c *cleanup) entry() Entry {
	if c.release == nil {
		again := *c.withdraw
		again.Repeated = c.repeated
		return Entry{Withdraw: &again}
	}
	again := *c.release
	again.Repeated = again.Repeated || again.Share.Limit == 0
	return Entry{Release: &again}
}

// cleanUp sends a batch. It returns an error or nil for each entry.
func (q *Queue) cleanUp(batch []*cleanup) []error {
	ctx, cancel := context.WithTimeout(q.base, backend.CallTimeout)
	defer cancel()
	entries := make([]Entry, len(batch))
	for i, c := range batch {
		entries[i] = c.entry()
	}
	return q.sender.Send(ctx, entries)
}
