package lockcore

import (
	"bytes"
	"hash/maphash"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// shards is the number of parts of the table of local queues. Calls for different keys rarely
// contend for a mutex.
const shards = 64

// kinds is the number of values of event.Kind, with the zero value.
const kinds = 3

type shard struct {
	l      *Locker
	mu     sync.Mutex
	queues [kinds]map[string]*keyQueue // by kind, by key; a queue exists while it has a leader
	shares map[string]*share           // by key: shares that calls can join
	waitEnds
}

var seed = maphash.MakeSeed()

// keyQueue is the local FIFO wait queue of a key. It always has exactly one leader: the call that
// sends requests to Redis, the current hold, or the goroutine that passes the leadership on. The
// leader ends its role by passLeadership, by finish, or by starting a hold. It deletes the queue
// only under the mutex and only if no call waits. If a lease is lost, its hold loses the leadership
// at once, so that no call waits for a handler that does not stop.
//
// The mutex of the shard guards all fields below mu. A goroutine that removes a waiting call from
// the list sends it exactly one turn. A call that is no longer in the list receives that turn.
//
// MaxWaiting is checked under the mutex too. If calls race for the last place, the first to lock
// the mutex gets it. A call without a place is refused. If the holder is not known yet, the call
// joins the list as crowded. When the holder becomes known, crowded calls get the free places in
// the order of the list. Places may be free then, because the leader may have become the holder, or
// waiters may have left.
type keyQueue struct {
	*shard
	key backend.Key

	first, last *call // in order of arrival; the leader is not in the list
	length      int32
	overdue     int32         // number of overdue calls in the list
	refill      time.Duration // in which the costs of the calls in the list that are not overdue return to the bucket
	leading     *call         // the leader, if it is a call without a grant: it waits too
	holderKnown chan struct{} // closed when the holder becomes known; nil without an Observer or without calls that joined before
	idle        *call         // the leader, while it can receive a share, see awaitOffer
	grant       *grant        // of this process, nil if it does not have the key; during a hand-off no hold runs under it
	*lastReply

	said map[int]time.Time // when a busy request has said how many calls wait, by its home
}

// turn is what a waiting call receives. It is the leadership with the key, the leadership with a
// request that may have reached Redis, a share without the leadership, or an outcome.
type turn struct {
	grant   *grant
	request *request
	result  *result
}

// result is the end of a call: a record or an error.
type result struct {
	record      *Record
	fingerprint string    // of record
	admitted    *admitted // the call may begin, and holds nothing
	err         error
	refused     *snapshot // its refusal is the error. The call makes it, because that may wait for the end of its ctx
}

func (r *result) of(c *call) (*Record, error) {
	switch {
	case r.record != nil:
		return c.acceptRecord(r.record, r.fingerprint)
	case r.refused != nil:
		return nil, r.refused.refusal(c)
	}
	return nil, r.err
}

// ofShare reports whether t has a share, which the call has joined or which a hold handed off to
// it.
func (t turn) ofShare() bool { return t.grant != nil && t.grant.share != nil }

// enqueue makes c the leader of a new queue or appends it to the existing one. If there is no
// queue, c may join a share instead. enqueue refuses calls that cannot succeed.
func (l *Locker) enqueue(c *call) (leads bool, joined *share, err error) {
	s := &l.shards[maphash.String(seed, c.key)%shards]
	s.mu.Lock()
	q := s.queues[c.kind][c.key]
	if q == nil {
		if joined = s.joinLocked(c); joined != nil {
			c.queue = joined.first.queue
			s.mu.Unlock()
			return false, joined, nil
		}
		q = &keyQueue{shard: s, key: l.backend.Key(backend.Kind(c.kind), c.key), lastReply: noReply, leading: c}
		if s.queues[c.kind] == nil {
			s.queues[c.kind] = map[string]*keyQueue{}
		}
		s.queues[c.kind][c.key] = q
		c.queue = q
		s.mu.Unlock()
		return true, nil, nil
	}
	c.queue = q
	if q.grant != nil && mismatch(q.grant.fingerprint, c.fingerprint) {
		s.mu.Unlock()
		return false, nil, &MismatchError{Key: c.key}
	}
	c.crowded = q.crowdedLocked(c)
	if (c.terms.Wait == NoWait || c.crowded) && q.canRefuseLocked(c) {
		snap := q.snapshotLocked()
		s.mu.Unlock()
		return false, nil, snap.refusal(c)
	}
	if s.closed {
		s.mu.Unlock()
		return false, nil, ErrClosed
	}
	if at := q.turnLocked(c, q.refill); at > 0 && c.terms.Wait != Forever && at > c.maxWait()-c.waited() {
		err := q.tooLateLocked(c, at)
		s.mu.Unlock()
		return false, nil, err
	}
	c.makeGiven()
	if c.overdue = c.terms.Wait == NoWait || c.crowded; c.overdue {
		q.overdue++
	}
	if c.overdue || c.start.Sub(q.sent) > replyFresh || mismatch(q.fingerprint, c.fingerprint) {
		q.signalLeaderLocked(c)
	}
	q.pushLocked(c)
	c.hasPlace = true
	snap := q.snapshotLocked()
	if snap.grant == nil && snap.busy == nil && l.observer != nil {
		if q.holderKnown == nil {
			q.holderKnown = make(chan struct{})
		}
		c.holderKnown = q.holderKnown
	}
	s.mu.Unlock()
	c.contended = true
	if c.holderKnown == nil {
		c.reportWaiting(snap)
	}
	return false, nil, nil
}

// pushLocked appends c to the list.
func (q *keyQueue) pushLocked(c *call) {
	c.queued, c.prev = true, q.last
	if q.last != nil {
		q.last.next = c
	} else {
		q.first = c
	}
	q.last = c
	q.length++
	if !c.overdue {
		q.refill += c.limit.Rate.refill()
	}
	c.see(q.queuedLocked())
	q.scheduleLocked(c)
}

// queuedLocked returns how many calls of the list wait for the key. Overdue calls do not count.
func (q *keyQueue) queuedLocked() int { return int(q.length - q.overdue) }

// waitingLocked returns how many calls wait for the key: those of the list, and the leader if it is
// a call without a grant.
func (q *keyQueue) waitingLocked() int {
	if q.leading != nil { //planted:leader-waits-too
		return q.queuedLocked() + 1
	}
	return q.queuedLocked()
}

const (
	waitsAfter = time.Second      // how long a call waits before its process says how many of its calls wait
	waitsEvery = 10 * time.Second // how long a process then says nothing; with waitCap less than backend.WaitsTTL
)

// waits returns what a request for c says of the calls of this process that wait. Each home needs it, see
// backend.AcquireRequest.
func (q *keyQueue) waits(c *call, home int) (w backend.Waits) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now, oldest := time.Now(), c.start
	if q.first != nil && q.first.start.Before(oldest) {
		oldest = q.first.start
	}
	if waited := now.Sub(oldest); waited >= waitsAfter && now.Sub(q.said[home]) >= waitsEvery { //planted:waits-said-rarely
		w = backend.Waits{Calls: max(q.waitingLocked(), 1), Oldest: waited}
	}
	return w
}

// crowdedLocked reports whether MaxWaiting leaves no place for c. Until the holder is known,
// overdue calls count too, because they may get a place.
func (q *keyQueue) crowdedLocked(c *call) bool {
	if c.terms.MaxWaiting == 0 || c.terms.Wait == NoWait {
		return false
	}
	n := q.waitingLocked()
	if !q.holderKnownLocked() {
		n += int(q.overdue)
	}
	return n >= c.terms.MaxWaiting
}

// admitLocked makes a crowded call a waiter if a place is free now.
func (q *keyQueue) admitLocked(c *call) bool {
	if !c.crowded || q.waitingLocked() >= c.terms.MaxWaiting { //planted:place-is-free
		return false
	}
	c.crowded, c.overdue = false, false
	q.overdue--
	q.refill += c.limit.Rate.refill()
	return true
}

func mismatch(a, b string) bool { return a != "" && b != "" && a != b }

// removeLocked removes c from the list.
func (q *keyQueue) removeLocked(c *call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		q.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		q.last = c.prev
	}
	if c.overdue {
		q.overdue--
	} else {
		q.refill -= c.limit.Rate.refill()
	}
	c.prev, c.next, c.queued = nil, nil, false
	q.length--
	q.unscheduleLocked(c)
}

// removeAllLocked removes the calls for which match returns true, and returns them.
func (q *keyQueue) removeAllLocked(match func(*call) bool) []*call {
	var out []*call
	for c := q.first; c != nil; {
		next := c.next
		if match(c) {
			q.removeLocked(c)
			out = append(out, c)
		}
		c = next
	}
	return out
}

// removeOverdueLocked removes and returns the overdue calls that can be refused and for which no
// place is free. Call it when the holder becomes known.
func (q *keyQueue) removeOverdueLocked() []*call {
	if q.overdue == 0 {
		return nil
	}
	return q.removeAllLocked(func(c *call) bool { return c.overdue && q.canRefuseLocked(c) && !q.admitLocked(c) })
}

// passLeadership makes the first waiter the leader. If no grant is passed on, the waiters at the
// front that can join a share join it first. If g can be handed to the new leader, the new leader
// gets the key. Otherwise it gets req. Without a waiter the queue is deleted, and the grant or
// request is withdrawn asynchronously. The caller must be the leader, and is not the leader when
// passLeadership returns.
func (q *keyQueue) passLeadership(g *grant, req *request) {
	if g != nil && g.share != nil { // a share is passed on without the leadership
		q.dropShare(g)
		g = nil
	}
	q.mu.Lock()
	var joined []*call
	var open *share
	if g == nil {
		joined, open = q.joinFrontLocked()
	}
	w, ours := q.first, g
	if w == nil || g != nil && !g.canHandTo(w, time.Now()) {
		ours = nil
	}
	if q.grant = ours; ours != nil {
		q.lastReply = noReply
	}
	if q.leading = w; ours != nil {
		q.leading = nil
	}
	var overdue []*call
	if w != nil {
		q.removeLocked(w)
		w.crowded = false
		if ours != nil {
			overdue = q.removeOverdueLocked()
		}
	} else {
		// Discard before the queue is deleted. Then the first call of a new queue for this key
		// waits for the withdrawal, see Backend.Acquire.
		if g != nil {
			g.discard()
		}
		if req != nil {
			req.discard()
		}
		delete(q.queues[q.key.Kind], q.key.Name)
	}
	snap := q.snapshotLocked()
	q.mu.Unlock()
	for _, c := range joined {
		c.give(turn{grant: open.newGrant(c)})
	}
	if w == nil {
		return
	}
	if g != nil && ours == nil {
		req = g.requestAfter(w)
	}
	w.give(turn{grant: ours, request: req})
	snap.refuseAll(overdue)
}

// setGrant records that this process has the key under g. It refuses the calls that cannot wait for
// g. The caller must be the leader.
func (q *keyQueue) setGrant(g *grant) {
	q.mu.Lock()
	q.grant, q.lastReply, q.leading = g, noReply, nil
	var others []*call
	if g.fingerprint != "" {
		others = q.removeAllLocked(func(c *call) bool { return mismatch(g.fingerprint, c.fingerprint) })
	}
	overdue := q.removeOverdueLocked()
	snap := q.snapshotLocked()
	q.mu.Unlock()
	snap.refuseAll(overdue)
	refuseMismatches(others)
}

// clearGrant undoes setGrant, because g ended before its hold began. c is the leader.
func (q *keyQueue) clearGrant(c *call) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.grant, q.leading = nil, c
}

// handOff ends the leadership of the hold that has ended under g. mine is false if the loss of the
// lease had already ended it. If the lease is alive, handOff hands the key to the first waiter, and
// handed is the number of hand-offs under g. If the batch has ended or that waiter cannot use the
// lease, next is that waiter. If the lease ends before the next hold starts, that hold does not
// start.
func (q *keyQueue) handOff(g *grant, alive bool, now time.Time) (mine bool, handed int, next *call) {
	q.mu.Lock()
	if q.grant != g {
		q.mu.Unlock()
		return false, 0, nil
	}
	w := q.first
	if !alive || w == nil || now.Sub(g.since) >= batchTime || !g.canHandTo(w, now) {
		q.grant = nil
		q.mu.Unlock()
		if !alive || w != nil && w.limit != (Limit{}) { // a share needs acquire_share.lua, which cannot be combined with the release
			w = nil
		}
		return true, 0, w
	}
	q.removeLocked(w)
	overdue := q.removeOverdueLocked()
	g.handOffs++
	handed, snap := int(g.handOffs), q.snapshotLocked()
	q.mu.Unlock()
	w.give(turn{grant: g})
	snap.refuseAll(overdue)
	return true, handed, nil
}

// loseGrant takes the leadership from a hold whose lease has ended early, and passes it on.
func (q *keyQueue) loseGrant(g *grant) {
	q.mu.Lock()
	mine := q.grant == g //planted:leader-lost
	if mine {
		q.grant = nil
	}
	q.mu.Unlock()
	if mine {
		q.passLeadership(nil, nil)
	}
}

// finish sends the record of a done key to all waiters. The caller must be the leader, and is not
// the leader when finish returns.
func (q *keyQueue) finish(rec Record, fingerprint string) {
	q.mu.Lock()
	q.grant = nil
	all := q.removeAllLocked(func(*call) bool { return true })
	delete(q.queues[q.key.Kind], q.key.Name)
	q.mu.Unlock()
	for _, c := range all {
		c.give(turn{result: &result{record: &Record{Data: bytes.Clone(rec.Data), Attempt: rec.Attempt}, fingerprint: fingerprint}})
	}
}

// replyFresh is the age up to which a new call uses the last reply. If the reply is older, the new
// call signals the leader to send its request again.
const replyFresh = 100 * time.Millisecond
