package lockcore

import (
	"crypto/rand"
	rnd "math/rand/v2"
	"time"
)

const (
	waitCap     = 2 * time.Second       // longest time between two requests of a waiter, and the cost of a lost message
	queueTTL    = time.Minute           // of a remote queue that no process refreshes
	minPause    = 10 * time.Millisecond // shortest time before a request that no message has caused
	minFailures = 3                     // consecutive sends without a reply before Redis counts as unavailable

	// Withdrawals and releases of a once key are retried for this time after the lease. If Redis
	// gets none of them, a run that never began or that failed counts as abandoned.
	extraRetention = time.Hour
)

// request is one attempt to acquire a key from Redis. Its id becomes the id of the grant. The
// leader of the local queue owns it and passes it on with the leadership, so that its place in the
// remote queue is kept. Every request has an end in Redis: a granted request becomes a grant, and
// any other request that Redis may know is withdrawn.
//
// The races:
//   - A message may arrive at any time. So signals are cleared before each send, never after.
//   - A send without a reply may still be granted. So such a request is withdrawn asynchronously.
//   - A grant that arrives too late, or that no call wants any more, is withdrawn and never runs.
//   - The queue does not send the next request before the withdrawal is confirmed. Otherwise the
//     request would find the dead grant of its own process and report it as abandoned.
type request struct {
	l             *Locker
	queue         *keyQueue
	id            string
	caller        *call         // the call that sent it last
	queued        bool          // it is in the remote queue
	repeated      bool          // sent more than once, or without a reply
	unresolved    bool          // no reply since the last send, or granted without a run
	remoteSignal  chan struct{} // a message from Redis; room for one, nil until the request subscribes
	localSignal   chan struct{} // the same, from calls of this process
	spurious      int           // consecutive messages after which the key was still busy
	callerChanged bool          // Redis may know another call as the caller
	nextTry       time.Time     // when to send again
	backoff       bool          // signals do not shorten nextTry, because Redis did not reply
}

func newRequest(c *call) *request {
	req := &c.firstRequest
	if req.l != nil { // firstRequest is in use
		req = new(request)
	}
	*req = request{l: c.l, queue: c.queue, id: rand.Text(), caller: c}
	if c.terms.Wait != NoWait && c.l.wake.ready() {
		req.subscribe()
	}
	return req
}

// assign makes c the caller of a request that another leader passed on.
func (req *request) assign(c *call) {
	stale := req.unresolved || req.repeated // Redis may grant it under the previous terms
	if !sameTerms(req.caller, c) {
		if stale {
			req.reissue()
		}
		req.nextTry, req.backoff = time.Time{}, false
	} else if stale && req.caller != c {
		req.callerChanged = true
	}
	req.caller = c
}

func sameTerms(a, b *call) bool {
	return a.terms.Lease == b.terms.Lease && a.keep == b.keep && a.mode == b.mode && a.fingerprint == b.fingerprint
}

func (req *request) subscribe() {
	if req.remoteSignal == nil {
		req.remoteSignal = make(chan struct{}, 1)
	}
	req.acceptLocalSignals()
	req.l.wake.register(req.id, req.remoteSignal)
}

// acceptLocalSignals lets calls of this process cause a send.
func (req *request) acceptLocalSignals() {
	if req.localSignal == nil {
		req.localSignal = make(chan struct{}, 1)
	}
}

func (req *request) send(c *call) ([]any, error) {
	l, limit, start := req.l, c.replyLimit(), time.Now()
	if err := l.cleanups.before(c.ctx, req.queue.keys[0], !req.mayExist(), min(limit, callTimeout)); err != nil {
		return nil, err
	}
	limit -= time.Since(start) // the limit covers both; the next send has all of it
	req.clearSignals()         //planted:hints-cleared
	args := &acquireArgs{
		ctx: limited{Context: c.ctx, limit: limit}, id: req.id, who: l.holderText(c.ctx), lease: micros(c.terms.Lease), keep: millis(c.terms.Lease + max(c.keep, abandonedTTL)),
	}
	reply, again, err := l.conn.send(&args.ctx, l.conn.calls, acquireScript, args.encode(req, c))
	req.recordSend(again, err) //planted:reply-noted
	return reply, err
}

// replyLimit is how long c waits for one reply.
func (c *call) replyLimit() time.Duration {
	if c.terms.Wait == Forever {
		return callTimeout
	}
	return max(c.maxWait()-c.waited(), callTimeout/2)
}

// acquireArgs holds the ctx and the arguments of one send in one allocation. The command points to
// them while it is under way.
type acquireArgs struct {
	ctx         limited
	id, who     string
	lease, keep int64
	list        [14]any
}

func (r *acquireArgs) encode(req *request, c *call) []any {
	q := req.queue
	queue := &no
	if req.remoteSignal != nil {
		queue = &yes
	}
	r.list = [14]any{
		2: 2, 3: &q.keys[0], 4: &q.keys[1], 5: &r.id, 6: &req.l.id, 7: &r.lease, 8: queue, 9: &r.who, 10: &r.keep,
		11: &c.fingerprint, 12: &c.mode, 13: &queueKeep,
	}
	return r.list[:]
}

// Targets of arguments. They never change.
var (
	no, yes   = flag(false), flag(true)
	queueKeep = millis(queueTTL)
	window    = micros(claimWindow)
)

// clearSignals drops signals that are older than the send that follows.
func (req *request) clearSignals() {
	select {
	case <-req.remoteSignal:
	default:
	}
	select {
	case <-req.localSignal:
	default:
	}
}

// recordSend records the result of a send.
func (req *request) recordSend(again bool, err error) {
	req.repeated = req.repeated || again
	req.unresolved = again && err != nil
	req.nextTry, req.backoff = time.Time{}, false
	if err == nil {
		req.queued = req.queued || req.remoteSignal != nil
	}
}

// backOff sets nextTry after a send without a reply.
func (req *request) backOff(tries int) {
	req.nextTry, req.backoff = time.Now().Add(time.Duration(min(20<<min(tries, 5), 500))*time.Millisecond), true
}

// retryWhenFree sets nextTry after the reply busy. It is the end of the holder's lease, because no
// message reports that a holder died, but at most waitCap away, because messages get lost.
func (req *request) retryWhenFree(b *BusyError) {
	if req.remoteSignal == nil {
		req.subscribe() // the subscription starts; when it is up, it signals the request, and the next send enters the remote queue
	} else {
		req.l.wake.start() // it may have ended
	}
	jitter := time.Duration(10+rnd.IntN(40)) * time.Millisecond
	req.nextTry = time.Now().Add(max(minPause, min(b.Remaining+jitter, waitCap-jitter))) //planted:request-again-at
}

// reissue gives the request a new id, at the end of the remote queue, because the old id was
// granted too late or may belong to another caller. The new id is not sent before the old one is
// withdrawn, so at most one withdrawal is open.
func (req *request) reissue() {
	old := req.id
	req.l.withdraw(req.queue, old, req.caller.keep, true, true)
	req.id, req.queued, req.repeated, req.unresolved, req.callerChanged = rand.Text(), false, false, false, false
	if req.remoteSignal != nil {
		req.l.wake.unregister(old)
		req.subscribe()
	}
}

// unsubscribe ends a request that was granted or needs no withdrawal.
func (req *request) unsubscribe() {
	if req.remoteSignal != nil {
		req.l.wake.unregister(req.id)
	}
}

// discard ends a request that no call wants any more. No message is lost meanwhile: the withdrawal
// enters its queue before the request leaves the table of waiters, and a signal that came earlier
// is passed on.
func (req *request) discard() {
	req.undo()
	req.unsubscribe()
	select {
	case <-req.remoteSignal:
		req.l.cleanups.hurry(req.id)
	default:
	}
}

// mayExist reports whether Redis may know the request.
func (req *request) mayExist() bool { return req.queued || req.unresolved || req.repeated }

// undo withdraws the request from Redis asynchronously: its queue entry, reservation or grant.
func (req *request) undo() {
	if req.queued || req.unresolved || req.repeated { //planted:undo-of-request
		req.l.withdraw(req.queue, req.id, req.caller.keep, req.unresolved || req.repeated, req.repeated)
	}
}

// withdraw removes from Redis a request, or a grant under which no call ran. granted: Redis may
// have granted the request.
func (l *Locker) withdraw(q *keyQueue, id string, keep time.Duration, granted, repeated bool) {
	l.cleanups.add(&cleanup{keys: q.keys, id: id, keep: keep, first: granted, repeated: repeated})
}

// retainWithdrawal returns how long a withdrawal is retried. left is what remains of the lease.
func (q *keyQueue) retainWithdrawal(left time.Duration) time.Duration {
	if q.kind == KindOnce {
		return left + extraRetention
	}
	return left
}
