package lockcore

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// lastReply is the most recent reply from Redis while another process has the key. It is immutable:
// readers may hold it without the mutex.
type lastReply struct {
	busy         *BusyError    // of the last reply; nil before the first reply
	rate         Rate          // of its request
	fingerprint  string        // of the holder
	interim      []byte        // interim answer of the holder
	sent         time.Time     // when its request was sent
	received     time.Time     // when it was received
	leaderSignal chan struct{} // makes the leader send its request again
	err          error         // of the last send
	failures     int           // consecutive sends without a reply
}

var noReply = new(lastReply)

// recordReply records the reply to a request that was sent at sent, or err if there was no reply.
// It refuses the calls that waited only for a reply. It returns the number of consecutive sends
// without a reply.
func (q *keyQueue) recordReply(req *request, sent time.Time, v acquired, err error) (failed int) {
	q.mu.Lock()
	var late []turnOf
	if b := v.busy; err != nil {
		n := *q.lastReply
		n.err = err
		n.failures++
		q.lastReply = &n
	} else {
		if q.busy != nil && b.kept() && !b.Exact && b.PauseReason == "" && b.Remaining <= backend.ReserveTime {
			b.Holder = q.busy.Holder // the key is reserved, not cooling: the error names the last holder
		}
		if req.saysWaits && b.Remaining > 0 { // otherwise a release that came too late did not queue the request
			if q.said == nil {
				q.said = map[int]time.Time{}
			}
			q.said[req.home] = sent
		}
		first := q.busy == nil
		q.lastReply = &lastReply{busy: b, rate: req.caller.limit.Rate, fingerprint: v.fingerprint, interim: v.interim, sent: sent, received: time.Now(), leaderSignal: req.localSignal}
		if first && b.Exact { // later calls learn it in enqueue
			late = q.removeLateLocked()
		}
	}
	overdue := q.removeOverdueLocked()
	if q.overdue > 0 && q.leaderSignal != nil {
		signal(q.leaderSignal)
	}
	var others []*call
	if err == nil && q.fingerprint != "" {
		others = q.removeAllLocked(func(c *call) bool { return mismatch(q.fingerprint, c.fingerprint) && !q.sent.Before(c.start) })
	}
	snap := q.snapshotLocked()
	q.mu.Unlock()
	if err == nil {
		q.announceHolder()
	}
	for _, o := range late {
		o.call.give(o.turn)
	}
	snap.refuseAll(overdue)
	refuseMismatches(others)
	return snap.failures
}

// announceHolder signals the calls that did not know the holder when they joined the queue.
func (q *keyQueue) announceHolder() {
	if q.l.observer == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.holderKnown != nil {
		close(q.holderKnown)
		q.holderKnown = nil
	}
}

// signalLeaderLocked makes the leader send its request again, unless c can be refused already.
func (q *keyQueue) signalLeaderLocked(c *call) {
	if q.leaderSignal != nil && !q.canRefuseLocked(c) {
		signal(q.leaderSignal)
	}
}

// holderKnownLocked reports whether this process has the key, Redis has replied that another
// process has it, or Redis does not reply.
func (q *keyQueue) holderKnownLocked() bool {
	return q.grant != nil || q.busy != nil || q.failures >= minFailures
}

// canRefuseLocked reports whether there is a useful error for c. There is one if this process has
// the key, Redis replied to a request sent after c began, or Redis does not reply. For a crowded
// call an earlier reply is sufficient, because other calls wait for the key.
func (q *keyQueue) canRefuseLocked(c *call) bool {
	return q.grant != nil || q.busy != nil && (c.crowded || !q.sent.Before(c.start)) || q.failures >= minFailures
}

// snapshot is a copy of the state of a queue for use without the mutex.
type snapshot struct {
	*lastReply
	grant   *grant
	queued  int // number of calls of the list that wait
	waiting int // queued, plus the leader if it waits too
}

func (q *keyQueue) snapshotLocked() snapshot {
	return snapshot{q.lastReply, q.grant, q.queuedLocked(), q.waitingLocked()}
}

func (q *keyQueue) snapshot() snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.snapshotLocked()
}

// refuseMismatches refuses calls whose fingerprint differs from that of the holder.
func refuseMismatches(others []*call) {
	for _, c := range others {
		c.give(turn{result: &result{err: &MismatchError{Key: c.key}}})
	}
}

func (s snapshot) refuseAll(overdue []*call) {
	for _, c := range overdue {
		c.give(turn{result: &result{err: s.refusal(c)}})
	}
}

// refusal returns the error of a call that gives up: a BusyError with the holder, or the last error
// from Redis. If the ctx of the call has ended, the error also has the cause of ctx.
func (s snapshot) refusal(c *call) error {
	var err error
	switch {
	case s.grant != nil || s.busy != nil && s.failures < 2: // a single failure may be caused by the end of the ctx of the call
		b := s.busyError(c)
		if c.crowded {
			b.Waiting = s.waiting
		}
		if s.grant == nil && c.interim != nil {
			c.interim.Answer = s.interim
		}
		err = b
	case s.err != nil:
		err = unavailable(s.err)
	case !backend.Ended(c.ctx):
		err = unavailable(errors.New("no reply yet"))
	default:
		return errtext.Wrap(ErrNotRun, endOf(c.ctx))
	}
	if end := endOf(c.ctx); end != nil {
		err = errtext.Join(err, end)
	}
	return err
}

// busyError returns the error that describes the holder to c.
func (s snapshot) busyError(c *call) *BusyError {
	if s.grant != nil {
		return s.grant.busy(c, s.queued)
	}
	b := *s.busy
	since := time.Since(s.received)
	if !b.kept() {
		b.HeldFor += since
	}
	b.Waited, b.Remaining, b.Queue = c.waited(), max(b.Remaining-since, 0), b.Queue+s.queued
	return &b
}
