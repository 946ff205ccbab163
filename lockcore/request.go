package lockcore

import (
	"cmp"
	"crypto/rand"
	rnd "math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	waitCap     = 2 * time.Second       // longest time between two sends of a waiter, and so the longest delay after a lost notification
	minPause    = 10 * time.Millisecond // shortest time before a send that no signal has caused
	coolPause   = time.Millisecond      // shortest time before a send that the end of a cooldown has caused
	minFailures = 3                     // consecutive sends without a reply before Redis counts as unavailable

	// How much longer than the lease the release of a once key is retried. If Redis never receives
	// the release, a run that failed counts as abandoned.
	extraRetryTime = time.Hour
)

// request is the command with which the leader acquires a key. Its id becomes the id of the grant.
// The leader of the local queue owns the request and passes it on with the leadership, so that its
// place in the remote queue is kept. Every request has an end in Redis: a granted request becomes a
// grant, and any other request that may have reached Redis is withdrawn.
//
// The races:
//   - A notification may arrive at any time. So signals are cleared before each send, never after.
//   - A send without a reply may still be granted. So such a request is withdrawn asynchronously.
//   - A grant that arrives too late, or that no call can use, is withdrawn, and no hold runs under
//     it.
//   - The queue does not send the next request before the withdrawal is confirmed. Otherwise the
//     request would meet the unused grant of its own process and report it as abandoned.
type request struct {
	l             *Locker
	queue         *keyQueue
	id            string
	caller        *call         // the call that sent it last
	home          int           // see backend.AcquireRequest
	queued        bool          // it is in the remote queue
	saysWaits     bool          // its last send said how many calls of this process wait
	repeated      bool          // sent more than once, or got no reply
	unresolved    bool          // no reply since the last send, or granted without a run
	callerChanged bool          // Redis may have the holder text of an earlier caller
	backoff       bool          // signals do not shorten nextTry, because Redis did not reply
	remoteSignal  chan struct{} // a notification arrived; capacity 1, nil until the request subscribes
	localSignal   chan struct{} // a call of this process needs a newer reply; capacity 1
	spurious      int           // consecutive notifications after which the key was still busy
	nextTry       time.Time     // when to send again
}

// requests are requests to reuse, because most calls need one for a short time.
var requests = sync.Pool{New: func() any { return new(request) }}

func newRequest(c *call) *request {
	req := requests.Get().(*request) //nolint:errcheck,forcetypeassert // nothing else is in it
	*req = request{l: c.l, queue: c.queue, id: rand.Text(), caller: c}
	if c.terms.Wait != NoWait && c.l.subscription.ready() {
		req.subscribe()
	}
	return req
}

// assign makes c the caller of a request that another leader has passed on.
func (req *request) assign(c *call) {
	stale := req.unresolved || req.repeated // Redis may grant it under the previous terms
	if !sameTerms(req.caller, c) {
		if stale || req.queued && req.caller.limit.share() != c.limit.share() { // the remote queue contains the share that it requests
			req.reissue()
		}
		req.nextTry, req.backoff = time.Time{}, false
	} else if stale && req.caller != c {
		req.callerChanged = true
	}
	req.caller = c
}

func sameTerms(a, b *call) bool {
	return a.terms.Lease == b.terms.Lease && a.fixed == b.fixed && a.keep == b.keep && a.atMostOnce == b.atMostOnce && a.fingerprint == b.fingerprint &&
		a.limit.share() == b.limit.share()
}

func (req *request) subscribe() {
	if req.remoteSignal == nil {
		req.remoteSignal = make(chan struct{}, 1)
	}
	req.acceptLocalSignals()
	req.l.subscription.register(req.id, req.remoteSignal)
}

// acceptLocalSignals allows calls of this process to cause a send.
func (req *request) acceptLocalSignals() {
	if req.localSignal == nil {
		req.localSignal = make(chan struct{}, 1)
	}
}

// send sends the request on behalf of c.
func (req *request) send(c *call) (backend.AcquireReply, error) {
	req.clearSignals() //planted:hints-cleared
	r := req.acquireRequest(c)
	if req.saysWaits = false; c.contended { // most calls do not wait
		req.addWaits(c, &r)
	}
	reply, err := req.l.backend.Acquire(c.ctx, r)
	req.recordSend(reply.Repeated, err) //planted:reply-noted
	return reply, err
}

func (req *request) acquireRequest(c *call) backend.AcquireRequest {
	return backend.AcquireRequest{
		Key: &req.queue.key, ID: req.id, Holder: req.l.storedHolder(c.ctx, c.fixed), Lease: c.terms.Lease, Retention: c.terms.Lease + markFor(c.keep, c.atMostOnce),
		Fingerprint: c.fingerprint, AtMostOnce: c.atMostOnce, Queue: req.remoteSignal != nil, First: !req.mayExist(), Timeout: c.replyTimeout(),
		Share: c.limit.share(), Calls: req.queue.calls(c), Home: req.home,
	}
}

// addWaits adds to r what it says of the calls of this process that wait.
func (req *request) addWaits(c *call, r *backend.AcquireRequest) {
	r.Waits = req.queue.waits(c, req.home)
	req.saysWaits = r.Queue && r.Waits.Calls > 0
}

// replyTimeout is how long c waits for one reply.
func (c *call) replyTimeout() time.Duration {
	if c.terms.Wait == Forever {
		return backend.CallTimeout
	}
	return max(c.maxWait()-c.waited(), backend.CallTimeout/2)
}

// clearSignals drops signals that are older than the send that follows it.
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

// retryWhenFree sets nextTry after a busy reply. nextTry is the end of the holder's lease, because
// no notification reports that a holder died. It is at most waitCap from now, because notifications
// can get lost.
//
// If the key or a share cools, the first request of the remote queue is sent again exactly at the
// end of the cooldown. That does not become a busy loop, because each reply grants the key or
// contains the end of another cooldown. The other requests are sent later, so that the first one
// gets the key and few commands are sent in vain. The backend notifies a request that becomes the
// first.
//
// Of a backend without a remote queue, the reply says when.
func (req *request) retryWhenFree(v *acquired) {
	if req.remoteSignal == nil {
		req.subscribe() // once the subscription is up, it signals the request, and the next send enters the remote queue
	} else {
		req.l.subscription.start() // the subscription may have ended
	}
	if v.retryIn > 0 {
		req.nextTry = time.Now().Add(min(v.retryIn, waitCap))
		return
	}
	jitter := time.Duration(10+rnd.IntN(40)) * time.Millisecond
	remaining := v.busy.Remaining
	switch v.place {
	case 1:
		req.nextTry = time.Now().Add(max(coolPause, min(remaining, waitCap))) //planted:request-after-cooldown
		return
	case 2:
		jitter *= 10
	}
	req.nextTry = time.Now().Add(max(minPause, min(remaining+jitter, waitCap-jitter))) //planted:request-again-at
}

// reissue gives the request a new id, at the end of the remote queue. It is called if the old id
// was granted too late or may belong to another caller. The new id is not sent before the old one
// is withdrawn, so at most one withdrawal is open.
func (req *request) reissue() {
	old := req.id
	req.unresolved, req.repeated = true, true
	req.withdraw()
	req.id, req.queued, req.repeated, req.unresolved, req.callerChanged = rand.Text(), false, false, false, false
	if req.remoteSignal != nil {
		req.l.subscription.unregister(old)
		req.subscribe()
	}
}

// reuse returns a request to the pool whose grant has a hold. Only the leader refers to a request.
func (req *request) reuse() {
	*req = request{}
	requests.Put(req)
}

// unsubscribe ends the notifications of a request that was granted or needs no withdrawal.
func (req *request) unsubscribe() {
	if req.remoteSignal != nil {
		req.l.subscription.unregister(req.id)
	}
}

// discard ends a request that no call needs any more. No notification is lost meanwhile. undo adds
// the withdrawal to the cleanup queue before unsubscribe, and Hurry passes an earlier signal on to
// the withdrawal.
func (req *request) discard() {
	req.undo()
	req.unsubscribe()
	select {
	case <-req.remoteSignal:
		req.l.backend.Hurry(req.id)
	default:
	}
}

// mayExist reports whether the request may have reached Redis.
func (req *request) mayExist() bool { return req.queued || req.unresolved || req.repeated }

// undo withdraws the request asynchronously: its queue entry, reservation or grant.
func (req *request) undo() {
	if req.queued || req.unresolved || req.repeated { //planted:undo-of-request
		req.withdraw()
	}
}

func (req *request) withdraw() {
	req.l.backend.Withdraw(backend.WithdrawRequest{
		Key: &req.queue.key, ID: req.id, Retention: req.caller.keep, Granted: req.unresolved || req.repeated, Repeated: req.repeated,
		Share: req.caller.limit.share(),
	})
}

// releaseRetryTime returns for how long a release is retried. left is the rest of the lease.
func (q *keyQueue) releaseRetryTime(left time.Duration) time.Duration {
	if q.key.Kind == backend.KindOnce {
		return left + extraRetryTime
	}
	return left
}

// acquired is the result of a request. The zero value means: send the request again at once.
type acquired struct {
	grant       *grant
	record      *Record
	busy        *BusyError
	place       int           // busy: see backend.AcquireReply
	retryIn     time.Duration // busy: see backend.AcquireReply
	fingerprint string        // of record, or of the holder
	interim     []byte        // interim answer of the holder
	admitted    *struct {
		admitted
		calls int // that may begin, the one of the request included
	}
	err error
}

// accept turns the reply to a request that c sent into a result.
func (req *request) accept(c *call, r *backend.AcquireReply) acquired {
	switch r.Outcome {
	case backend.OutcomeGranted:
		return req.acceptGrant(c, r)
	case backend.OutcomeAdmitted:
		v := acquired{admitted: new(struct {
			admitted
			calls int
		})}
		v.admitted.rest, v.admitted.reset, v.admitted.calls = r.Rest, r.Reset, r.Calls
		if r.Parked {
			req.l.seeParked(&req.queue.key, access.ParkedHeld)
		}
		return v
	case backend.OutcomeDone:
		if r.Parked {
			req.l.seeParked(&req.queue.key, access.ParkedDone)
		}
		return acquired{record: &Record{Data: r.Record, Attempt: r.Attempt}, fingerprint: r.Fingerprint}
	case backend.OutcomeMismatch:
		return acquired{err: &MismatchError{Key: c.key, Done: r.IsDone}}
	case backend.OutcomeAbandoned:
		return acquired{err: &AbandonedError{Key: c.key, Holder: holderOf(r.Locker, r.Holder), HeldFor: r.HeldFor, Attempt: r.Attempt}}
	case backend.OutcomeEnded: // it was granted, but that grant has expired or was revoked
		req.reissue()
		return acquired{}
	case backend.OutcomeBusy:
		if r.Withdraw {
			req.home, req.saysWaits = r.Home, false // it may not have been in the queue
			req.reissue()
		}
	}
	return acquired{fingerprint: r.Fingerprint, interim: r.Record, place: r.Place, retryIn: r.RetryIn, busy: &BusyError{
		Key: c.key, Holder: holderOf(r.Locker, r.Holder), HeldFor: r.HeldFor, Remaining: r.Remaining, Queue: r.Queue,
		Shares: r.Shares, Exact: r.Exact, PauseReason: r.Paused, Local: r.Shares > 0 && r.Locker == c.l.id,
	}}
}

// acceptGrant makes a grant from a reply that arrived in time. From here on the grant, not the
// request, must be released.
func (req *request) acceptGrant(c *call, r *backend.AcquireReply) acquired {
	req.unresolved = true // until the grant is registered, the request must be withdrawn
	now := time.Now()
	if between(r.Sent, now) >= usable(c.terms.Lease) { //planted:grant-in-time
		req.reissue()
		return acquired{}
	}
	g := &grant{
		l: req.l, queue: req.queue, id: req.id, leaseTerm: c.terms.Lease, fixed: c.fixed, keep: c.keep, atMostOnce: c.atMostOnce, fingerprint: c.fingerprint,
		attempt: 1, repeated: req.repeated, plain: r.Plain,
		since:      cmp.Or(r.Received, now), // Received, because the goroutine of a call in a group may run late; clockPast needs a time soon after the grant
		granted:    r.GrantedAt.UnixMicro(),
		firstToken: r.Token, abandoned: r.Abandoned, lease: c.terms.Lease,
		sent: r.Sent, //planted:grant-counts-from
	}
	if req.queue.key.Kind == backend.KindOnce {
		g.attempt = int32(r.Attempt) //nolint:gosec // the backend bounds it
	}
	if !req.callerChanged {
		g.requestedBy = c
	}
	if c.limit.share().Limit > 0 {
		g.share = &share{Share: c.limit.share(), phase: r.Phase, rated: r.Reset > 0, first: g, sent: r.Sent, users: 1}
	}
	if !req.l.addGrant(g) {
		return acquired{err: ErrClosed}
	}
	if r.Parked {
		req.l.seeParked(&req.queue.key, access.ParkedHeld)
	}
	req.unresolved, req.queued, req.repeated = false, false, false
	if !g.fixed {
		req.l.watchdog.add(g, now)
	}
	return acquired{grant: g}
}
