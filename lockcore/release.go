package lockcore

import (
	"context"
	"time"
)

// end hands the key over inside the process or tells Redis that the tenure has ended, and sees to it that the line goes on. alive: the
// lease has not ended early.
func (h *hold) end(ctx context.Context, e ending, alive bool) (handed, stale bool, err error) {
	g := h.g
	alive = alive && g.line.kind == KindExclusive && !e.abandoned && (e.parked.IsZero() || !time.Now().Before(e.parked))
	mine, times, next := g.line.release(g, alive)
	if times > 0 {
		if times == 1 {
			g.l.dog.introduce(g)
		}
		return true, false, nil
	}
	g.close()
	if next != nil {
		stale, err = h.rotate(ctx, next)
		return false, stale, err
	}
	stale, err = h.finish(ctx, e)
	switch {
	case !mine: // the line went on when the lease was lost
	case e.completed && !stale && err == nil:
		g.line.done(Record{Data: e.record, Attempt: int(g.attempt)}, g.tag)
	default:
		g.line.goOn(nil, nil)
	}
	return false, stale, err
}

// rotate ends a streak: it releases the key and asks for it again on behalf of next, in one script, so that other processes get their
// turn, and the key comes straight back if none waits. Without an answer the release goes on in the background, and the ask with the line; a
// late copy then finds that neither is wanted.
func (h *hold) rotate(ctx context.Context, next *call) (stale bool, err error) {
	g, l := h.g, h.g.l
	a := newAsk(next)
	last, _ := g.last()
	a.clear()
	sent := time.Now()
	reply, again, err := l.conn.run(context.WithoutCancel(ctx), l.conn.ends, rotateScript, g.line.keys[:],
		g.id, last, millis(g.keep), flag(g.repeated), micros(claimWindow), l.wakePrefix, flag(l.conn.single),
		a.id, l.id, micros(next.terms.Lease), flag(a.woken != nil), l.who(next.ctx),
		millis(next.terms.Lease+max(next.keep, abandonedTTL)), millis(queueTTL))
	a.sent(again, err)
	released, bad := number(reply, 0)
	if err != nil || bad != nil {
		g.repeated = g.repeated || again
		g.line.goOn(nil, a)
		h.finishLater(ending{})
		return false, unavailable(err)
	}
	v := a.read(next, sent, reply[1:])
	if v.busy != nil {
		a.open()
		g.line.heard(a, sent, v, nil)
		a.lineUp(v.busy)
	}
	if v.g != nil {
		a.close()
		a = nil
	}
	g.line.goOn(v.g, a)
	return released == 0 && !again, nil
}

// finish sends the end, and hands it to the background if it gets no answer.
func (h *hold) finish(ctx context.Context, e ending) (stale bool, err error) {
	g := h.g
	gone, again, err := g.sendEnd(ctx, e, false, true)
	if err != nil {
		h.finishLater(e) //planted:release-again
		return false, err
	}
	// A repeat finds the hold gone that its first copy ended: no verdict. A completion remembers by whom.
	return gone && (e.completed || !again), nil
}

func (h *hold) finishLater(e ending) {
	g := h.g
	if !e.completed {
		g.releaseLater(e)
		return
	}
	g.l.inBackground(g.until(), func(ctx context.Context) error {
		gone, _, err := g.sendEnd(ctx, e, true, false)
		switch {
		case err != nil:
		case gone: // Redis no longer knew the hold, or another run has begun
			g.l.shielded(func() { g.l.Report(h.asked, CompletionFailed{Err: ErrLost}) })
		default:
			g.l.shielded(func() { g.l.Report(h.asked, CompletionStored{}) })
		}
		return err
	}, func(err error) { g.l.shielded(func() { g.l.Report(h.asked, CompletionFailed{Err: err}) }) })
}

// releaseLater has a hold released, or abandoned, by the queue, as long as that is useful: until the end of the lease.
// For a once key that has run without an outcome it is useful longer, until the key would count as abandoned, see
// insist.
func (g *grant) releaseLater(e ending) {
	until := g.until()
	if !e.abandoned {
		until = time.Now().Add(g.line.insist(time.Until(until)))
	}
	if time.Now().Before(until) {
		g.l.cleanups.add(&cleanup{keys: g.line.keys, id: g.id, release: &release{g, e}, until: until, repeated: true})
	}
}

// sendEnd tells Redis. free: whether or not ctx has ended.
func (g *grant) sendEnd(ctx context.Context, e ending, repeated, free bool) (gone, again bool, err error) {
	l, keys := g.l, g.line.keys
	last, _ := g.last()
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

// releaseArgs are the ctx and the arguments of one send of release.lua in one piece of memory.
type releaseArgs struct {
	ctx        limited
	last, keep int64
	park       int64
	list       [14]any
}

func (g *grant) releaseArgs(last int64, e ending, repeated bool) *releaseArgs {
	r := &releaseArgs{last: last, keep: millis(g.keep)}
	if park := time.Until(e.parked); park > 0 {
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
		2: 2, 3: &g.line.keys[0], 4: &g.line.keys[1], 5: &g.id, 6: &r.last, 7: abandon, 8: &r.keep, 9: remember, 10: &window,
		11: &g.l.wakePrefix, 12: single, 13: &r.park,
	}
	return r
}

// insteadOf makes the ask of c that follows a grant which no call can use. If no call ran under that grant, the ask
// waits until its withdrawal is confirmed, see cleanups.before.
func (g *grant) insteadOf(c *call) *ask {
	g.giveBack()
	return newAsk(c)
}

// giveBack ends, by the queue, a grant that no call of this process wants any more.
func (g *grant) giveBack() {
	l := g.l
	g.close()
	if _, tenures := g.last(); tenures == 0 {
		l.withdraw(g.line, g.id, g.keep, true, g.repeated)
	} else {
		l.cleanups.add(&cleanup{keys: g.line.keys, id: g.id, release: &release{g, ending{}}, until: g.until(), repeated: true})
	}
	l.remove(g)
}
