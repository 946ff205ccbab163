package lockcore

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
)

// end hands the key to another call of this process, or ends the hold in Redis. It passes the
// leadership on. alive is false if the lease has ended early. now is the time at which the last run
// returned.
func (h *hold) end(ctx context.Context, e outcome, alive bool, now time.Time) (handed, stale bool, err error) {
	g := h.grant
	alive = alive && g.queue.key.Kind == backend.KindExclusive && !e.abandoned && (e.coolUntil.IsZero() || !now.Before(e.coolUntil)) //planted:hand-off-without-an-end
	if g.share != nil {
		return h.endShare(ctx, e, alive, now)
	}
	mine, handOffs, next := g.queue.handOff(g, alive, now)
	if handOffs > 0 {
		if handOffs == 1 {
			g.l.watchdog.publishSoon(g)
		}
		return true, false, nil
	}
	g.close()
	if next != nil {
		stale, err = h.releaseAndAcquire(ctx, next)
		return false, stale, err
	}
	stale, err = h.release(ctx, e)
	switch {
	case !mine: // the loss of the lease has already passed the leadership on
	case e.completed && !stale && err == nil:
		g.queue.finish(Record{Data: e.record, Attempt: int(g.attempt)}, g.fingerprint)
	default:
		g.queue.passLeadership(nil, nil)
	}
	return false, stale, err
}

// releaseAndAcquire ends a batch. One command releases the key and requests it again on behalf of
// next. If no other process waits, this process gets the key again at once. If no reply arrives,
// the release is retried asynchronously, and the next leader gets the request. A late duplicate of
// the command then finds both ids in the list of ended ids.
func (h *hold) releaseAndAcquire(ctx context.Context, next *call) (stale bool, err error) {
	g, l := h.grant, h.grant.l
	req, sent := newRequest(next), false
	defer func() {
		if !sent { // a Value method of the ctx of next panicked: the waiters must continue, and the key must be released
			req.unsubscribe()
			g.queue.passLeadership(nil, nil)
			h.releaseAsync(outcome{})
		}
	}()
	req.clearSignals()
	r, again := g.releaseRequest(outcome{}), req.acquireRequest(next)
	req.addWaits(next, &again)
	r.Next, sent = &again, true
	reply, err := l.backend.Release(ctx, r)
	req.recordSend(reply.Next.Repeated, err)
	if err != nil {
		g.repeated = g.repeated || reply.Repeated
		g.queue.passLeadership(nil, req)
		h.releaseAsync(outcome{})
		return false, unavailable(err)
	}
	v := req.accept(next, &reply.Next)
	if v.busy != nil {
		req.acceptLocalSignals()
		g.queue.recordReply(req, reply.Next.Sent, v, nil)
		req.retryWhenFree(&v)
	}
	if v.grant != nil {
		req.unsubscribe()
		req = nil
	}
	if reply.Parked {
		l.seeParked(&g.queue.key, access.ParkedFree)
	}
	g.queue.passLeadership(v.grant, req)
	return !reply.Released && !reply.Repeated, nil
}

// release ends the hold in the backend. If no reply arrives, the release is retried asynchronously.
func (h *hold) release(ctx context.Context, e outcome) (stale bool, err error) {
	g := h.grant
	var reply backend.ReleaseReply
	if e.completed {
		reply, err = g.complete(context.WithoutCancel(ctx), e, false)
	} else {
		reply, err = g.l.backend.Release(ctx, g.releaseRequest(e))
	}
	if err != nil {
		h.releaseAsync(e) //planted:release-again
		return false, translate(err)
	}
	if reply.Parked {
		state := access.ParkedFree
		if e.completed {
			state = access.ParkedDone
		}
		g.l.seeParked(&g.queue.key, state)
	}
	// If the first copy of a repeated release has ended the hold, the repeat reports no hold. That
	// is not stale. A completion is different: the key remembers which grant completed it.
	return !reply.Released && (e.completed || !reply.Repeated), nil
}

func (h *hold) releaseAsync(e outcome) {
	g := h.grant
	if !e.completed {
		g.releaseAsync(e)
		return
	}
	g.l.retryAsync(g.serverEnd(), func(ctx context.Context) error {
		reply, err := g.complete(ctx, e, true)
		switch {
		case err != nil:
		case !reply.Released: // the data of the hold has expired, or another run has begun
			g.l.shielded(func() { g.l.report(h.callCtx, event.CompletionFailed{Err: ErrLost}) })
		default:
			g.l.shielded(func() { g.l.report(h.callCtx, event.CompletionStored{}) })
		}
		return err
	}, func(err error) {
		g.l.shielded(func() { g.l.report(h.callCtx, event.CompletionFailed{Err: translate(err)}) })
	})
}

// releaseAsync makes the backend retry the release or the abandonment of a hold until the end of
// the lease. The release of a once key is retried for longer, see releaseRetryTime. Without the
// release, its run would count as abandoned.
func (g *grant) releaseAsync(e outcome) {
	until := g.serverEnd()
	if !e.abandoned {
		until = time.Now().Add(g.queue.releaseRetryTime(time.Until(until)))
	}
	if time.Now().Before(until) {
		g.l.backend.ReleaseLater(g.releaseRequest(e), until)
	}
}

func (g *grant) releaseRequest(e outcome) backend.ReleaseRequest {
	last, _ := g.lastHold()
	r := backend.ReleaseRequest{
		Key: &g.queue.key, ID: g.id, Token: last, Retention: g.keep, Abandon: e.abandoned, CoolUntil: e.coolUntil, Repeated: g.repeated,
		Plain: g.plain && g.clockPast(last), Share: g.shareOf(),
	}
	if e.abandoned {
		r.Retention = markFor(g.keep, g.atMostOnce)
	}
	return r
}

// clockPast reports whether the backend's clock is certainly past a token of the grant. Tokens are
// microseconds of that clock, and the first token is the time of the grant. The backend's clock may
// be 2 % slower than the local one.
func (g *grant) clockPast(token int64) bool {
	used := time.Duration(token-g.granted) * time.Microsecond
	return used+time.Microsecond <= time.Since(g.since)*98/100 // plus a microsecond, because the clock counts whole microseconds
}

func (g *grant) complete(ctx context.Context, e outcome, repeated bool) (backend.ReleaseReply, error) {
	last, _ := g.lastHold()
	return g.l.backend.Complete(ctx, backend.CompleteRequest{
		Key: &g.queue.key, ID: g.id, Token: last, Record: e.record, Keep: e.keep, Repeated: repeated || g.repeated, Plain: g.plain,
	})
}

// requestAfter returns the request of c that follows a grant which no call can use. If no call ran
// under that grant, Backend.Acquire waits until the withdrawal of the grant is confirmed.
func (g *grant) requestAfter(c *call) *request {
	g.discard()
	return newRequest(c)
}

// discard asynchronously withdraws or releases a grant that no call of this process can use.
func (g *grant) discard() {
	g.close()
	if g.share != nil {
		g.discardShare()
		return
	}
	if _, holds := g.lastHold(); holds == 0 {
		g.l.backend.Withdraw(backend.WithdrawRequest{Key: &g.queue.key, ID: g.id, Retention: g.keep, Granted: true, Repeated: g.repeated})
	} else {
		g.l.backend.ReleaseLater(g.releaseRequest(outcome{}), g.serverEnd())
	}
	g.l.removeGrant(g)
}

// retryAsync retries do, a completion, until it succeeds, the time until has passed, or the Locker
// ends. In the last two cases, and if maxPending retries are pending, it calls failed. The backend
// itself retries withdrawals and releases.
func (l *Locker) retryAsync(until time.Time, do func(context.Context) error, failed func(error)) {
	l.mu.Lock()
	if l.ended || l.pending >= maxPending {
		l.mu.Unlock()
		failed(ErrUnavailable)
		return
	}
	l.pending++
	l.wg.Add(1)
	l.mu.Unlock()
	go func() { // owner: l, which waits for it in join; it ends with a reply, by until, or with l.base
		defer l.wg.Done()
		err := l.retry(until, do)
		l.mu.Lock()
		l.pending--
		l.mu.Unlock()
		if err != nil {
			failed(err)
		}
	}()
}

func (l *Locker) retry(until time.Time, do func(context.Context) error) error {
	ctx, cancel := context.WithDeadline(l.base, until)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := do(ctx)
		if err == nil || l.backend.Permanent(err) && !errors.Is(err, backend.ErrHeldUp) || ctx.Err() != nil || !backend.Sleep(ctx, pause) {
			return err
		}
	}
}
