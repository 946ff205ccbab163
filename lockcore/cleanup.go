package lockcore

import (
	chain "container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	maxCleanups    = 16384 // with this many unconfirmed cleanups a request for a new key waits; each takes about 500 bytes
	cleanupBatch   = 100   // in one pipeline
	cleanupSenders = 2     // pipelines under way to one server
	firstRetry     = 20 * time.Millisecond
	cleanupRetry   = 500 * time.Millisecond // between later tries: two a second to a server that does not answer
)

var errPending = errors.New("lockcore: an earlier request for the key is not withdrawn yet")

// cleanup is an entry of the queue. It withdraws a request, or releases a hold, that Redis may still have. It has the
// keys and the id, and no reference to the call.
type cleanup struct {
	keys     [2]string
	id       string
	keep     time.Duration // retention of the hash
	release  *release      // nil: withdraw a request
	until    time.Time     // when a release is of no use any more; a withdrawal has no end
	repeated bool          // a late duplicate of the request may exist
	first    bool          // Redis may have granted the request: the next request for the key waits

	// Guarded by cleanups.mu.
	urgent bool
	err    error          // of the last try; nil before
	in     *chain.List    // nil while a try is under way
	at     *chain.Element // of in
	done   chan struct{}  // closed at the end; nil until a request waits for it
}

// release is a release of a hold that got no reply.
type release struct {
	g *grant
	e outcome
}

// cleanups is the one queue of withdrawals and releases that Redis has not confirmed.
//
// Invariant: an entry is in the queue, or in one pipeline, from add until Redis has confirmed it. Only three things end
// it otherwise: a reply that a repeat cannot change, the end of a release's use, and Close. Each is reported as
// CleanupFailed. The queue itself refuses nothing. Its bound limits what creates entries: at maxCleanups entries,
// requests for new keys wait. So it has at most maxCleanups entries plus one for each call and lease that existed when
// it reached the bound.
//
// Entries that may have their key are sent before those that only wait for it, otherwise in order. Each server has at
// most cleanupSenders goroutines (cleanup_send.go), which send pipelines of at most cleanupBatch entries. A server that
// does not answer stops only its own lane. There is no goroutine while nothing can be sent.
//
// The races. A message for a request finds the waiting call, the entry, or both: add runs before the request leaves the
// table of waiters, and the call looks for a hint after that. A message for an entry under way changes nothing. The
// next request for a key waits until the withdrawal of the previous one is confirmed, see before. So only the queue
// sends the previous id, and never after its successor. begin decides between Close and add, under Locker.mu; an entry
// that comes after Close is reported.
type cleanups struct {
	l *Locker

	n      atomic.Int64 // len(all)
	firsts atomic.Int64 // entries that are first

	mu      sync.Mutex
	all     map[string]*cleanup   // by id
	byKey   map[string][]*cleanup // those that are first
	lanes   map[string]*lane      // by server; lane "" sends to any server, in a cluster first to other lanes, see route
	room    chan struct{}         // closed when there is room again; nil until a request waits for it
	held    bool                  // the queue is not empty and counted in Locker.wg
	stopped bool
	unsaid  atomic.Int64 // entries that were given up and are not reported yet
	why     error        // of the last of them
}

// lane has the entries for one server. Guarded by cleanups.mu.
type lane struct {
	node    string
	ready   chain.List // of *cleanup
	failed  chain.List // they wait for the timer
	senders int
	fails   int  // pipelines in a row without an answer
	paused  bool // until the timer fires
	timer   *time.Timer
}

// add puts a cleanup into the queue. It never blocks and never calls the Observer.
func (q *cleanups) add(c *cleanup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all[c.id] != nil {
		return
	}
	if q.stopped || !q.held && !q.l.startWorker() {
		q.unsaid.Add(1)
		q.why = ErrClosed
		return
	}
	if q.all == nil {
		q.all, q.byKey, q.lanes = map[string]*cleanup{}, map[string][]*cleanup{}, map[string]*lane{}
	}
	q.held = true
	q.all[c.id] = c
	q.n.Add(1)
	if c.first {
		q.byKey[c.keys[0]] = append(q.byKey[c.keys[0]], c)
		q.firsts.Add(1)
	}
	c.urgent = c.first || c.release != nil // it may have the key, which no other call gets before
	q.putLocked(q.laneLocked(""), c)
}

func (q *cleanups) laneLocked(node string) *lane {
	ln := q.lanes[node]
	if ln == nil {
		ln = &lane{node: node}
		q.lanes[node] = ln
	}
	return ln
}

// putLocked makes an entry ready to be sent.
func (q *cleanups) putLocked(ln *lane, c *cleanup) {
	c.in = &ln.ready
	if c.urgent {
		c.at = c.in.PushFront(c)
	} else {
		c.at = c.in.PushBack(c)
	}
	q.startLocked(ln)
}

// startLocked starts a sender if there is something to send and room for one. A server that has not answered gets one at a time.
func (q *cleanups) startLocked(ln *lane) {
	if ln.paused || q.stopped || ln.ready.Len() == 0 || ln.senders >= cleanupSenders || ln.fails > 0 && ln.senders > 0 {
		return
	}
	ln.senders++
	q.l.wg.Add(1) // not from zero: the queue is held
	go q.send(ln) // owner: l, which waits for it in join; it ends when its lane is empty or paused
}

// hurry makes an entry the next one that is sent. It does not end the pause of a server that does not answer.
func (q *cleanups) hurry(id string) {
	if q.n.Load() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if c := q.all[id]; c != nil {
		c.hurryLocked()
	}
}

func (c *cleanup) hurryLocked() {
	c.urgent = true
	if c.at != nil {
		c.in.MoveToFront(c.at)
	}
}

// before waits until a request for a key may be sent. The withdrawals of requests for the key that Redis may have
// granted must be confirmed. If the request is new, there must also be room for its own withdrawal.
func (q *cleanups) before(ctx context.Context, key string, fresh bool, limit time.Duration) error {
	if q.firsts.Load() == 0 && (!fresh || q.n.Load() < maxCleanups) {
		return nil
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		done, err := q.blocker(key, fresh)
		if done == nil {
			return nil
		}
		select {
		case <-done:
		case <-timer.C:
			return err
		case <-ctx.Done():
			return err
		case <-q.l.closing:
			return ErrClosed
		}
	}
}

// blocker returns the channel that a request must wait for, or nil, and the error to return if that takes too long.
func (q *cleanups) blocker(key string, fresh bool) (<-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if older := q.byKey[key]; len(older) > 0 {
		c := older[0]
		c.hurryLocked()
		if c.done == nil {
			c.done = make(chan struct{})
		}
		if c.err != nil {
			return c.done, errtext.Wrap(errPending, c.err)
		}
		return c.done, errPending
	}
	if !fresh || len(q.all) < maxCleanups {
		return nil, nil
	}
	if q.room == nil {
		q.room = make(chan struct{})
	}
	return q.room, fmt.Errorf("lockcore: %d withdrawals and releases are not confirmed by Redis; requests for new keys wait until there are fewer than %d", len(q.all), maxCleanups)
}

// endLocked ends an entry that is in no list.
func (q *cleanups) endLocked(c *cleanup, err error) {
	if err != nil {
		q.unsaid.Add(1)
		q.why = err
	}
	delete(q.all, c.id)
	q.n.Add(-1)
	if c.first {
		older := q.byKey[c.keys[0]]
		for i, o := range older {
			if o == c {
				older = append(older[:i], older[i+1:]...)
				break
			}
		}
		if q.byKey[c.keys[0]] = older; len(older) == 0 {
			delete(q.byKey, c.keys[0])
		}
		q.firsts.Add(-1)
	}
	if c.done != nil {
		close(c.done)
	}
	if q.room != nil && len(q.all) < maxCleanups {
		close(q.room)
		q.room = nil
	}
	if len(q.all) == 0 {
		q.emptyLocked()
	}
}

func (q *cleanups) emptyLocked() {
	clear(q.lanes) // every list is empty; a sender that has its lane still finds nothing there
	q.held = false
	q.l.wg.Done()
}

// stop ends the queue at the end of Close. It reports the entries that are left; the ctx of pipelines under way ends
// them.
func (q *cleanups) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopped {
		return
	}
	q.stopped = true
	for _, ln := range q.lanes {
		if ln.timer != nil {
			ln.timer.Stop()
		}
		ln.ready.Init()
		ln.failed.Init()
	}
	q.unsaid.Add(int64(len(q.all)))
	q.why = ErrClosed
	for _, c := range q.all {
		c.in, c.at = nil, nil
		if c.done != nil {
			close(c.done)
		}
	}
	clear(q.all)
	clear(q.byKey)
	q.n.Store(0)
	q.firsts.Store(0)
	if q.held {
		q.emptyLocked()
	}
}

// report reports to the Observer the entries that were given up. Its caller has no lock.
func (q *cleanups) report() {
	if q.unsaid.Load() == 0 {
		return
	}
	q.mu.Lock()
	e := CleanupFailed{N: int(q.unsaid.Swap(0)), Err: q.why}
	q.mu.Unlock()
	if e.N > 0 {
		q.l.shielded(func() { q.l.Report(q.l.base, e) })
	}
}
