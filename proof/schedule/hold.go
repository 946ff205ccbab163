package schedule

import "github.com/holdfast-go/holdfast/internal/backend"

// useHold does one thing with a hold. After the lease has ended, the process can only end the hold.
func (p *process) useHold() {
	w, h, once := p.w, &p.hold, p.w.kind == backend.KindOnce
	alone := !once && h.share.Alone()
	alive := p.holds()
	if w.passes && alive && w.chance(25) {
		p.transfer()
		return
	}
	switch x := w.rnd.IntN(100); {
	case h.revoked && alive:
		p.renew()
	case x < 25 && alive:
		p.renew()
	case x < 45 && alive && alone:
		p.handOff()
	case x < 65 && once:
		p.complete(h.repeated)
	case x < 70 && (once || alone):
		p.release(command{abandon: true})
	case x < 75 && alive:
		p.release(command{cooldown: pick(w, []int64{1500, 700_000, 10e6})})
	case x < 85 && alive && alone:
		p.rotate()
	case x < 100:
		p.release(command{})
	}
}

// handOff begins the next hold under the same grant.
func (p *process) handOff() {
	h := &p.hold
	left := h.first + backend.TokensPerGrant - 1 - h.token
	if left <= 0 {
		return
	}
	if h.token++; p.w.chance(20) {
		h.token += p.w.rnd.Int64N(left)
	}
	p.w.trace("P%d hands off, token %d", p.n, h.token)
	p.w.invariants.begins(h.id, h.token, "")
}

// renew extends the lease. The process continues meanwhile.
func (p *process) renew() {
	h, w, sent := &p.hold, p.w, p.w.now
	id, life, token := h.id, p.life, int64(0)
	if h.token != h.published {
		token = h.token
	}
	h.revoked = false
	c := command{op: renew, id: id, lease: h.lease, retention: h.lease + w.abandonedFor(h.mode), token: token, share: h.share}
	w.send(p, c, func(rep *reply) {
		switch {
		case rep == nil || p.life != life || !p.holds() || h.id != id:
		case rep.value == backend.VerdictKept:
			h.until = max(h.until, sent+h.lease)
			h.published = max(h.published, token)
		default:
			h.until = w.now
		}
	})
}

// release ends the hold.
func (p *process) release(c command) {
	w, h := p.w, &p.hold
	c.op, c.id, c.token, c.keep, c.repeated, c.share = release, h.id, h.token, w.keep, h.repeated, h.share
	c.plain = h.plain && !h.repeated && !c.abandon && c.cooldown == 0 && h.token-h.first < (w.now-h.since)*98/100
	c.many = c.plain && p.w.chance(50)
	if c.abandon {
		c.keep = w.abandonedFor(h.mode)
	}
	until := p.retryUntil(c.abandon)
	p.state = awaiting
	w.send(p, c, func(rep *reply) {
		if p.state = idle; rep == nil {
			p.releaseLater(c, until)
		}
	})
}

func (p *process) retryUntil(abandon bool) int64 {
	if p.w.kind == backend.KindOnce && !abandon {
		return max(p.hold.until, p.w.now) + extraRetry
	}
	return p.hold.until
}

func (p *process) releaseLater(c command, until int64) {
	if c.repeated, c.plain, c.many = true, false, false; p.w.now < until {
		p.cleanups = append(p.cleanups, &cleanup{command: c, until: until})
	}
}

// rotate releases the key and requests it again for the next local waiter.
func (p *process) rotate() {
	w, h, sent := p.w, &p.hold, p.w.now
	p.req = request{id: w.id('R'), lease: h.lease, mode: exclusive, queue: w.chance(85)}
	c := command{
		op: rotate, id: h.id, next: p.req.id, locker: p.locker, token: h.token, keep: w.keep, repeated: h.repeated,
		lease: h.lease, retention: h.lease + w.abandonedFor(exclusive), mode: exclusive, queue: p.req.queue,
	}
	until := p.retryUntil(false)
	p.state = awaiting
	w.send(p, c, func(rep *reply) {
		if rep == nil {
			p.releaseLater(command{op: release, id: c.id, token: c.token, keep: c.keep}, until)
		}
		p.replied(sent, rep)
	})
}

// complete ends the hold of a once key with a record. It is retried until the lease ends.
func (p *process) complete(repeated bool) {
	w, h := p.w, &p.hold
	if p.state == completing && w.now >= h.until {
		p.state = idle
		return
	}
	c := command{op: complete, id: h.id, token: h.token, record: "record of " + h.id, keep: w.keep, repeated: repeated, plain: h.plain && !repeated}
	p.state = awaiting
	w.send(p, c, func(rep *reply) {
		if p.state = idle; rep == nil {
			p.state = completing
		}
	})
}
