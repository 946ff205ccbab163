package lockcore

import (
	"context"
	"time"
)

// end hands the key to another call of this process, or ends the hold in Redis. It passes the
// leadership on. alive: the lease has not ended early.
func (h *hold) end(ctx context.Context, e outcome, alive bool) (handed, stale bool, err error) {
	g := h.grant
	alive = alive && g.queue.kind == KindExclusive && !e.abandoned && (e.parkedUntil.IsZero() || !time.Now().Before(e.parkedUntil))
	mine, times, next := g.queue.handOff(g, alive)
	if times > 0 {
		if times == 1 {
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
	case !mine: // the loss of the lease passed the leadership on
	case e.completed && !stale && err == nil:
		g.queue.finish(Record{Data: e.record, Attempt: int(g.attempt)}, g.fingerprint)
	default:
		g.queue.passLeadership(nil, nil)
	}
	return false, stale, err
}

// releaseAndAcquire ends a batch: one script releases the key and requests it again on behalf of
// next. Other processes get their turn; if none waits, the key comes straight back. Without a reply
// the release is retried asynchronously, and the request goes on with the queue; a late duplicate
// then finds both ids ended.
func (h *hold) releaseAndAcquire(ctx context.Context, next *call) (stale bool, err error) {
	g, l := h.grant, h.grant.l
	req := newRequest(next)
	last, _ := g.lastHold()
	req.clearSignals()
	sent := time.Now()
	reply, again, err := l.conn.run(context.WithoutCancel(ctx), l.conn.ends, rotateScript, g.queue.keys[:],
		g.id, last, millis(g.keep), flag(g.repeated), micros(claimWindow), l.wakePrefix, flag(l.conn.single),
		req.id, l.id, micros(next.terms.Lease), flag(req.remoteSignal != nil), l.holderText(next.ctx),
		millis(next.terms.Lease+max(next.keep, abandonedTTL)), millis(queueTTL))
	req.recordSend(again, err)
	released, bad := number(reply, 0)
	if err != nil || bad != nil {
		g.repeated = g.repeated || again
		g.queue.passLeadership(nil, req)
		h.releaseAsync(outcome{})
		return false, unavailable(err)
	}
	v := req.parse(next, sent, reply[1:])
	if v.busy != nil {
		req.acceptLocalSignals()
		g.queue.recordReply(req, sent, v, nil)
		req.retryWhenFree(v.busy)
	}
	if v.grant != nil {
		req.unsubscribe()
		req = nil
	}
	g.queue.passLeadership(v.grant, req)
	return released == 0 && !again, nil
}

// release sends the end of the hold. Without a reply it is retried asynchronously.
func (h *hold) release(ctx context.Context, e outcome) (stale bool, err error) {
	g := h.grant
	gone, again, err := g.sendEnd(ctx, e, false, true)
	if err != nil {
		h.releaseAsync(e) //planted:release-again
		return false, err
	}
	// A repeat finds no hold if its first copy has ended it, so that is not stale. A completion
	// remembers the hold that completed.
	return gone && (e.completed || !again), nil
}

func (h *hold) releaseAsync(e outcome) {
	g := h.grant
	if !e.completed {
		g.releaseAsync(e)
		return
	}
	g.l.retryAsync(g.serverEnd(), func(ctx context.Context) error {
		gone, _, err := g.sendEnd(ctx, e, true, false)
		switch {
		case err != nil:
		case gone: // Redis does not know the hold any more, or another run has begun
			g.l.shielded(func() { g.l.Report(h.asked, CompletionFailed{Err: ErrLost}) })
		default:
			g.l.shielded(func() { g.l.Report(h.asked, CompletionStored{}) })
		}
		return err
	}, func(err error) { g.l.shielded(func() { g.l.Report(h.asked, CompletionFailed{Err: err}) }) })
}

// releaseAsync has the cleanup queue release or abandon a hold, for as long as that is useful:
// until the end of the lease. The release of a once key that ran without an outcome is useful
// longer, because the key would count as abandoned, see retainWithdrawal.
func (g *grant) releaseAsync(e outcome) {
	until := g.serverEnd()
	if !e.abandoned {
		until = time.Now().Add(g.queue.retainWithdrawal(time.Until(until)))
	}
	if time.Now().Before(until) {
		g.l.cleanups.add(&cleanup{keys: g.queue.keys, id: g.id, release: &release{g, e}, until: until, repeated: true})
	}
}

// sendEnd sends the end of the hold. free: it goes on if ctx has ended.
func (g *grant) sendEnd(ctx context.Context, e outcome, repeated, free bool) (gone, again bool, err error) {
	l, keys := g.l, g.queue.keys
	last, _ := g.lastHold()
	var reply []any
	if e.completed {
		if free {
			ctx = context.WithoutCancel(ctx)
		}
		reply, again, err = l.conn.run(ctx, l.conn.ends, completeScript, keys[:],
			g.id, e.record, millis(e.keep), last, l.wakePrefix, flag(repeated || g.repeated))
	} else {
		args := g.releaseArgs(last, e, repeated || g.repeated)
		args.ctx = limited{
			Context: ctx, limit: callTimeout,
			free: free, //planted:release-outlives-ctx
		}
		reply, again, err = l.conn.send(&args.ctx, l.conn.ends, releaseScript, args.list[:])
	}
	if err != nil {
		return false, again, err
	}
	n, err := number(reply, 0)
	return n == 0, again, err
}

// releaseArgs holds the ctx and the arguments of one send of release.lua in one allocation.
type releaseArgs struct {
	ctx        limited
	last, keep int64
	park       int64
	list       [14]any
}

func (g *grant) releaseArgs(last int64, e outcome, repeated bool) *releaseArgs {
	r := &releaseArgs{last: last, keep: millis(g.keep)}
	if park := time.Until(e.parkedUntil); park > 0 {
		r.park, r.keep = micros(park), millis(park+g.keep)
	}
	abandon, remember, single := &no, &no, &no
	if e.abandoned {
		abandon, r.keep = &yes, millis(max(g.keep, abandonedTTL))
	}
	if repeated {
		remember = &yes
	}
	if g.l.conn.single {
		single = &yes
	}
	r.list = [14]any{
		2: 2, 3: &g.queue.keys[0], 4: &g.queue.keys[1], 5: &g.id, 6: &r.last, 7: abandon, 8: &r.keep, 9: remember, 10: &window,
		11: &g.l.wakePrefix, 12: single, 13: &r.park,
	}
	return r
}

// requestAfter makes the request of c that follows a grant which no call can use. If no call ran
// under that grant, the request waits until its withdrawal is confirmed, see cleanups.before.
func (g *grant) requestAfter(c *call) *request {
	g.discard()
	return newRequest(c)
}

// discard withdraws or releases, by the cleanup queue, a grant that no call of this process wants
// any more.
func (g *grant) discard() {
	l := g.l
	g.close()
	if _, holds := g.lastHold(); holds == 0 {
		l.withdraw(g.queue, g.id, g.keep, true, g.repeated)
	} else {
		l.cleanups.add(&cleanup{keys: g.queue.keys, id: g.id, release: &release{g, outcome{}}, until: g.serverEnd(), repeated: true})
	}
	l.removeGrant(g)
}
