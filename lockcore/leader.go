package lockcore

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// lead sends requests until the call has an outcome. The call must be the leader. If the outcome is
// a hold of the key alone, that hold becomes the leader. Otherwise lead passes the leadership on.
func (c *call) lead(req *request) (*hold, *Record, error) {
	if req == nil {
		req = newRequest(c)
	} else {
		req.assign(c)
	}
	for {
		c.owned.request = req
		if err := c.awaitRetry(req); err != nil {
			c.resign(nil, req) //planted:leader-gives-up
			return nil, nil, err
		}
		if c.owned.share != nil {
			if h := c.runOffered(req); h != nil {
				return h, nil, nil
			}
			continue
		}
		reply, err := req.send(c)
		if err != nil {
			if err := c.onSendFailed(req, reply.Sent, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		sent, v := reply.Sent, req.accept(c, &reply)
		switch {
		case v.grant != nil:
			if h, err := c.onGranted(req, v.grant); h != nil || err != nil {
				req.reuse()
				return h, nil, err
			}
			req = v.grant.requestAfter(c)
			req.nextTry = sent.Add(minPause)
		case v.admitted != nil:
			req.queued, req.unresolved = false, false
			//planted:admitted-request-ends
			req.discard() // if a duplicate may arrive, it must not enter the remote queue
			c.owned.request, c.admitted = nil, &v.admitted.admitted
			c.queue.admit(c, v.admitted.calls-1)
			return nil, nil, nil
		case v.record != nil:
			req.queued = false // the script removed it from the remote queue
			req.discard()
			c.owned.request = nil
			c.queue.finish(*v.record, v.fingerprint)
			rec, err := c.acceptRecord(v.record, v.fingerprint)
			return nil, rec, err
		case v.busy != nil:
			if err := c.onBusy(req, sent, v); err != nil {
				return nil, nil, err
			}
		case v.err != nil:
			c.resign(nil, req)
			return nil, nil, v.err
		default:
			req.nextTry = sent.Add(minPause)
		}
	}
}

// resign passes on the leadership, and the share that the call received, if any.
func (c *call) resign(g *grant, req *request) {
	if share := c.owned.share; share != nil {
		c.owned.share, c.leads = nil, false
		c.queue.dropShare(share)
	}
	c.owned.request = nil
	c.queue.passLeadership(g, req)
}

// onSendFailed handles a send that got no reply. It returns an error if the call gives up.
func (c *call) onSendFailed(req *request, sent time.Time, err error) error {
	//planted:end-of-call-itself
	if backend.Ended(c.ctx) { // the call itself ended, so this is not recorded as a failure of Redis
		s := c.queue.snapshot()
		if s.busy == nil {
			s.lastReply = &lastReply{err: err}
		}
		c.resign(nil, req)
		return s.refusal(c)
	}
	tries := c.queue.recordReply(req, sent, acquired{}, err)
	over := c.waited() - c.maxWait() // reaches CallTimeout only if earlier leaders of the queue have sent requests too
	// After a pause of the process, the first send may time out although Redis works. So one
	// failure is not enough.
	if c.l.backend.Permanent(err) || over >= 0 && (tries >= minFailures || tries > 1 && over >= backend.CallTimeout) {
		c.resign(nil, req)
		return snapshot{lastReply: &lastReply{err: err}}.refusal(c)
	}
	req.backOff(tries)
	return nil
}

// onGranted starts the hold. It returns an error if the ctx of the call has ended. It returns
// neither a hold nor an error if the lease has ended. Then the caller must withdraw the grant, see
// requestAfter.
func (c *call) onGranted(req *request, g *grant) (*hold, error) {
	req.unsubscribe()
	if c.ctx.Err() != nil { // the next waiter may be able to use the grant
		err := c.queue.snapshot().refusal(c)
		c.resign(g, nil) //planted:canceled-grant-passed-on
		return nil, err
	}
	if g.share != nil {
		c.owned.share, c.leads, c.owned.request = g, true, nil
		h := g.startHold(c)
		c.owned.share, c.leads = nil, false
		if c.owned.hold = h; h != nil {
			c.queue.openShare(g, c)
		}
		return h, nil
	}
	c.owned.grant, c.owned.request = g, nil
	c.queue.setGrant(g)
	h := g.startHold(c)
	c.owned.grant, c.owned.hold = nil, h
	if h == nil {
		c.queue.clearGrant(c)
		return nil, nil
	}
	c.queue.announceHolder()
	return h, nil
}

// onBusy handles a busy reply. It returns an error if the wait of the call has expired, or if the
// reply has the interim answer that the call requested.
func (c *call) onBusy(req *request, sent time.Time, v acquired) error {
	req.acceptLocalSignals()
	c.queue.recordReply(req, sent, v, nil)
	s := c.queue.snapshot()
	//planted:late-turn
	late := v.busy.Exact && c.terms.Wait != Forever && v.busy.Remaining > c.maxWait()-c.waited()
	if c.terms.Wait == NoWait || c.waited() >= c.terms.Wait || late || c.interim != nil && len(v.interim) > 0 {
		c.see(s.queued + v.busy.Queue)
		err := s.refusal(c)
		c.resign(nil, req)
		return err
	}
	req.retryWhenFree(&v)
	c.reportWaiting(s)
	return nil
}

// awaitRetry waits until the next send is due: until nextTry, or until a signal. It returns an
// error if the call ends first. While it waits, the call may receive a share, see runOffered.
func (c *call) awaitRetry(req *request) error {
	var d time.Duration
	if !req.nextTry.IsZero() { // the first send is due at once
		d = time.Until(req.nextTry)
	}
	//planted:futile-hints
	if d > 0 && !req.backoff && req.spurious > 3 { // forged notifications must not determine the rate of requests
		quiet := min(time.Millisecond<<min(req.spurious, 8), d)
		if _, err := c.pause(nil, nil, quiet); err != nil {
			return err
		}
		d -= quiet
	}
	var remote, local chan struct{}
	if !req.backoff { // after a send without a reply, signals do not shorten the pause
		remote, local = req.remoteSignal, req.localSignal
	}
	if d > 0 && c.limit.N != 0 {
		defer c.endOffer(req)
		c.awaitOffer()
	}
	notified, err := c.pause(remote, local, d)
	switch {
	case notified:
		req.spurious++
	case d > 0 && !req.backoff:
		req.spurious = 0
	}
	return err
}

// pause waits for d or for a signal. It returns an error if the call ends first. If remote is nil,
// the end of Wait is not an error, because the caller sends one more request first. notified is
// true if a notification ended the pause.
func (c *call) pause(remote, local chan struct{}, d time.Duration) (notified bool, err error) {
	if d <= 0 {
		if c.ctx.Err() != nil {
			return false, c.queue.snapshot().refusal(c)
		}
		select {
		case <-c.l.closing:
			return false, ErrClosed
		default:
			return false, nil
		}
	}
	end := c.maxWait() - c.waited()
	timer := time.NewTimer(max(min(d, end), 0))
	defer timer.Stop()
	select {
	case <-remote:
		return true, nil
	case <-local:
		return false, nil
	case <-c.given:
		c.owned.share = c.turn.grant
		return false, nil
	case <-timer.C:
		if d >= end && remote != nil {
			return false, c.queue.snapshot().refusal(c)
		}
		return false, nil
	case <-c.ctx.Done():
		return false, c.queue.snapshot().refusal(c)
	case <-c.l.closing:
		return false, ErrClosed
	}
}
