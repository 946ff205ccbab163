package lockcore

import (
	"math"
	"time"
)

// Status of a reply of acquire.lua.
const (
	statusBusy = iota
	statusGranted
	statusDone
	statusMismatch
	statusAbandoned
	statusEnded
)

// acquireReply is a parsed reply to a request. The zero value means: send again at once.
type acquireReply struct {
	grant       *grant
	record      *Record
	busy        *BusyError
	fingerprint string // of record, or of the holder
	err         error
}

// parse reads the reply to a request that c sent.
func (req *request) parse(c *call, sent time.Time, reply []any) acquireReply {
	status, err := number(reply, 0)
	if err != nil {
		return acquireReply{err: unavailable(err)}
	}
	switch status {
	case statusGranted:
		return req.parseGrant(c, sent, reply)
	case statusDone:
		n, _ := number(reply, 2)
		return acquireReply{record: &Record{Data: []byte(text(reply, 1)), Attempt: int(n)}, fingerprint: text(reply, 3)}
	case statusMismatch:
		done, _ := number(reply, 1)
		return acquireReply{err: &MismatchError{Key: c.key, Done: done == 1}}
	case statusAbandoned:
		age, _ := number(reply, 2)
		n, _ := number(reply, 3)
		return acquireReply{err: &AbandonedError{Key: c.key, Holder: parseHolder(text(reply, 1)), HeldFor: micro(age), Attempt: int(n)}}
	case statusEnded: // it was granted and expired before the reply arrived
		req.reissue()
		return acquireReply{}
	}
	left, err := number(reply, 1)
	if err != nil {
		return acquireReply{err: unavailable(err)}
	}
	held, _ := number(reply, 2)
	queue, _ := number(reply, 4)
	return acquireReply{fingerprint: text(reply, 5), busy: &BusyError{
		Key: c.key, Holder: parseHolder(text(reply, 3)), HeldFor: micro(held), Remaining: micro(left), Queue: int(queue),
	}}
}

// parseGrant makes a grant of a reply that arrived in time. From here on the grant, not the
// request, must be released.
func (req *request) parseGrant(c *call, sent time.Time, reply []any) acquireReply {
	req.unresolved = true // until the grant exists the request must be withdrawn
	token, err := number(reply, 1)
	if err != nil || token >= 1<<53 { // made of absurd data: Lua could not count on from there
		return acquireReply{err: unavailable(err)}
	}
	if elapsed(sent) >= usable(c.terms.Lease) { //planted:grant-in-time
		req.reissue()
		return acquireReply{}
	}
	n, _ := number(reply, 2)
	abandoned, _ := number(reply, 3)
	g := &grant{
		l: req.l, queue: req.queue, id: req.id, terms: grantTerms{c.terms.Lease, c.terms.NoRenew}, keep: c.keep, fingerprint: c.fingerprint, attempt: 1, repeated: req.repeated,
		since:     time.Now(),
		nextToken: token, lastToken: token + tokenBlock - 1, abandoned: abandoned == 1, lease: c.terms.Lease, index: -1,
		sent: sent, //planted:grant-counts-from
	}
	if req.queue.kind == KindOnce {
		g.attempt = int32(min(n, math.MaxInt32))
	}
	if !req.callerChanged {
		g.requestedBy = c
	}
	if !req.l.addGrant(g) {
		return acquireReply{err: ErrClosed}
	}
	req.unresolved, req.queued, req.repeated = false, false, false
	if !g.terms.NoRenew {
		req.l.watchdog.add(g)
	}
	return acquireReply{grant: g}
}

// maxSpan bounds the durations that replies contain, so that sums of them do not overflow.
const maxSpan = 100 * 365 * 24 * time.Hour

// micro converts microseconds to a duration of at most maxSpan.
func micro(us int64) time.Duration {
	return time.Duration(min(us, maxSpan.Microseconds())) * time.Microsecond
}
