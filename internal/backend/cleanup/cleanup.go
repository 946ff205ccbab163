// Package cleanup is the queue of withdrawals and releases that a server has not confirmed.
package cleanup

import (
	chain "container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	// MaxCleanups is the number of unconfirmed cleanups at which requests for new keys begin to
	// wait. Each cleanup takes about 500 bytes.
	MaxCleanups = 16384

	cleanupBatch   = 100 // maximum number of entries in one batch
	cleanupSenders = 2   // maximum number of batches in flight to one server
	firstRetry     = 20 * time.Millisecond
	cleanupRetry   = 500 * time.Millisecond // between later tries: a server that does not reply gets two per second
)

var errPending = errors.New("lockcore: an earlier request for the key is not withdrawn yet")

// cleanup is an entry of the cleanup queue: a withdrawal, or a release that got no reply.
type cleanup struct {
	withdraw *backend.WithdrawRequest
	release  *backend.ReleaseRequest // if withdraw is nil
	key      *backend.Key
	id       string
	until    time.Time // the release is useless after this time; zero for a withdrawal, which is always useful

	// Guarded by Queue.mu.
	repeated bool // a late duplicate of the request may exist
	urgent   bool
	err      error          // of the last try; nil before the first
	in       *chain.List    // the list that has the entry; nil while a try is in flight
	at       *chain.Element // the element of in
	done     chan struct{}  // closed when the entry ends; nil until a request waits for that
}

// blocksNext reports whether the next request for the key must wait: the entry withdraws a request
// that may have been granted.
func (c *cleanup) blocksNext() bool { return c.withdraw != nil && c.withdraw.Granted }

// Entry is a withdrawal or a release. One of the fields is set.
type Entry struct {
	Withdraw *backend.WithdrawRequest
	Release  *backend.ReleaseRequest
}

// Sender sends the entries of a Queue.
type Sender interface {
	// Route is that of backend.Backend.
	Route(ctx context.Context, keys []*backend.Key) []string
	// Send sends a batch within ctx, and returns an error or nil for each entry.
	Send(ctx context.Context, batch []Entry) []error
	// After returns what follows from an error of Send.
	After(err error) Fate
}

// Fate is what follows from an error of an entry.
type Fate uint8

// The fates.
const (
	TryAgain      Fate = iota // the entry was not sent, or the server did not perform it
	MayTakeEffect             // the entry was sent and got no reply: also TryAgain, and a duplicate may arrive
	Refused                   // the server refuses this entry now, but not others: try it again
	GiveUp                    // a repeat would fail with the same error
)

// Queue is the queue of withdrawals and releases that a server has not confirmed.
//
// Invariant: after add, an entry is in the queue or in one batch, until a server has confirmed it.
// Only three other events end it: a reply that a repeat cannot change, a release that is no longer
// useful, and Close. Each of them is reported to Options.CleanupsFailed. The queue never refuses an
// entry before Close. Its bound limits the calls that create entries: at MaxCleanups entries,
// requests for new keys wait. So the queue has at most MaxCleanups entries plus one for each call
// and lease that existed when it reached the bound.
//
// Entries that may have their key are sent before entries that only wait for their key. Otherwise
// entries are sent in order. Each server has at most cleanupSenders goroutines (send.go),
// which send batches of at most cleanupBatch entries. A server that does not reply stops only its
// own lane. No goroutine runs while nothing can be sent.
//
// The races:
//
//   - A notification for a request reaches the waiting call, the entry, or both. Withdraw runs
//     before the request leaves the engine's table of waiters. The engine then passes an earlier
//     notification on by Hurry.
//   - A notification for an entry in flight changes nothing.
//   - The next request for a key waits until the withdrawal of the previous one is confirmed, see
//     Before. So only the queue sends the previous id, and never after the next one.
//   - mu decides between Drain and add. An entry that is added after Drain has closed the empty
//     queue is reported.
type Queue struct {
	sender  Sender
	o       backend.Options
	base    context.Context //nolint:containedctx // its end ends the batches in flight
	senders sync.WaitGroup

	n        atomic.Int64 // len(all)
	blocking atomic.Int64 // entries that block the next request for their key

	mu         sync.Mutex
	all        map[string]*cleanup   // by id
	byKey      map[string][]*cleanup // entries that block the next request, by key
	lanes      map[string]*lane      // by server; lane "" is for all servers; in a cluster it moves entries to other lanes, see route
	room       chan struct{}         // closed when the queue is below its bound again; nil until a request waits for that
	drained    chan struct{}         // made by Drain; closed when the queue is empty; then the queue accepts no entry
	stopped    bool
	unreported atomic.Int64 // number of entries that were given up and are not reported yet
	lastErr    error        // of the last of these entries
}

// lane has the entries for one server. Guarded by Queue.mu.
type lane struct {
	node    string
	ready   chain.List // of *cleanup
	failed  chain.List // entries that wait for the timer
	senders int
	fails   int  // consecutive batches without a reply
	paused  bool // until the timer fires
	timer   *time.Timer
}

// New returns an empty queue. The end of base ends the batches in flight.
func New(base context.Context, s Sender, o backend.Options) *Queue {
	return &Queue{
		sender: s, o: o, base: base, all: map[string]*cleanup{}, byKey: map[string][]*cleanup{}, lanes: map[string]*lane{},
	}
}

// Len returns the number of entries.
func (q *Queue) Len() int { return int(q.n.Load()) }

// Withdraw adds a withdrawal to the queue.
func (q *Queue) Withdraw(r backend.WithdrawRequest) {
	q.add(&cleanup{withdraw: &r, key: r.Key, id: r.ID, repeated: r.Repeated})
}

// ReleaseLater adds a release to the queue.
func (q *Queue) ReleaseLater(r backend.ReleaseRequest, until time.Time) {
	q.add(&cleanup{release: &r, key: r.Key, id: r.ID, repeated: true, until: until})
}

// add adds a cleanup to the queue, once. It never blocks.
func (q *Queue) add(c *cleanup) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.all[c.id] != nil {
		return
	}
	if q.stopped || q.drained != nil && len(q.all) == 0 {
		q.unreported.Add(1)
		q.lastErr = backend.ErrClosed
		return
	}
	q.all[c.id] = c
	q.n.Add(1)
	if c.blocksNext() {
		q.byKey[c.key.Stored[0]] = append(q.byKey[c.key.Stored[0]], c)
		q.blocking.Add(1)
	}
	c.urgent = c.blocksNext() || c.release != nil // it may have the key: then no other call gets the key before the entry is confirmed
	q.putLocked(q.laneLocked(""), c)
}

func (q *Queue) laneLocked(node string) *lane {
	ln := q.lanes[node]
	if ln == nil {
		ln = &lane{node: node}
		q.lanes[node] = ln
	}
	return ln
}

// putLocked makes an entry ready to be sent.
func (q *Queue) putLocked(ln *lane, c *cleanup) {
	c.in = &ln.ready
	if c.urgent {
		c.at = c.in.PushFront(c)
	} else {
		c.at = c.in.PushBack(c)
	}
	q.startLocked(ln)
}

// startLocked starts a sender if an entry is ready and the server has fewer than cleanupSenders
// senders. A server that did not reply gets one sender at a time.
func (q *Queue) startLocked(ln *lane) {
	if ln.paused || q.stopped || ln.ready.Len() == 0 || ln.senders >= cleanupSenders || ln.fails > 0 && ln.senders > 0 {
		return
	}
	ln.senders++
	q.senders.Add(1) // never after stop
	go q.send(ln)    // owner: q; Backend.Close waits for it; it ends when its lane is empty or paused, or after stop
}

// Hurry makes an entry the next one to be sent. If the lane of the entry is paused, it stays
// paused.
func (q *Queue) Hurry(id string) {
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

// Blocks reports whether Before may have to wait.
func (q *Queue) Blocks(fresh bool) bool {
	return q.blocking.Load() != 0 || fresh && q.n.Load() >= MaxCleanups
}

// Before waits until a request for a key may be sent. If a server may have granted an earlier request
// for the key, the withdrawal of that request must be confirmed. If the request is new, the queue
// must also be below its bound.
func (q *Queue) Before(ctx context.Context, key string, fresh bool, limit time.Duration) error {
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
		case <-q.o.Closing:
			return backend.ErrClosed
		}
	}
}

// blocker returns the channel that a request must wait for, or nil. err is the error of the request
// if that takes too long.
func (q *Queue) blocker(key string, fresh bool) (<-chan struct{}, error) {
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
	if !fresh || len(q.all) < MaxCleanups {
		return nil, nil
	}
	if q.room == nil {
		q.room = make(chan struct{})
	}
	return q.room, fmt.Errorf("lockcore: %d withdrawals and releases are not confirmed; requests for new keys wait until there are fewer than %d", len(q.all), MaxCleanups)
}

// endLocked ends an entry that is in no list. err is why it was given up, or nil if it is
// confirmed.
func (q *Queue) endLocked(c *cleanup, err error) {
	if err != nil {
		q.unreported.Add(1)
		q.lastErr = err
	}
	delete(q.all, c.id)
	q.n.Add(-1)
	if c.blocksNext() {
		older := q.byKey[c.key.Stored[0]]
		for i, o := range older {
			if o == c {
				older = append(older[:i], older[i+1:]...)
				break
			}
		}
		if q.byKey[c.key.Stored[0]] = older; len(older) == 0 {
			delete(q.byKey, c.key.Stored[0])
		}
		q.blocking.Add(-1)
	}
	if c.done != nil {
		close(c.done)
	}
	if q.room != nil && len(q.all) < MaxCleanups {
		close(q.room)
		q.room = nil
	}
	if len(q.all) == 0 {
		q.onEmptyLocked()
	}
}

func (q *Queue) onEmptyLocked() {
	clear(q.lanes) // every list is empty, also for a sender that still has its lane
	if q.drained != nil {
		close(q.drained)
	}
}

// Drain returns a channel that is closed when the queue is empty. From then on the queue accepts no
// entry.
func (q *Queue) Drain() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.drained == nil {
		q.drained = make(chan struct{})
		if len(q.all) == 0 {
			close(q.drained)
		}
	}
	return q.drained
}

// Stop ends the queue. It reports the remaining entries as given up.
func (q *Queue) Stop() {
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
	q.unreported.Add(int64(len(q.all)))
	q.lastErr = backend.ErrClosed
	empty := len(q.all) == 0
	for _, c := range q.all {
		c.in, c.at = nil, nil
		if c.done != nil {
			close(c.done)
		}
	}
	clear(q.all)
	clear(q.byKey)
	q.n.Store(0)
	q.blocking.Store(0)
	if !empty {
		q.onEmptyLocked()
	}
}

// Report reports the entries that were given up. The caller must hold no mutex.
func (q *Queue) Report() {
	if q.unreported.Load() == 0 {
		return
	}
	q.mu.Lock()
	n, err := int(q.unreported.Swap(0)), q.lastErr
	q.mu.Unlock()
	if n > 0 && q.o.CleanupsFailed != nil {
		q.o.CleanupsFailed(n, err)
	}
}

// Wait waits for the goroutines of the queue, which end after Stop.
func (q *Queue) Wait() { q.senders.Wait() }
