package schedule

import "slices"

// send sends a command of p over the network. on receives the reply, or nil if none arrives. p is
// nil for an operator. A command without a reply may run now, later, several times, or never.
func (w *world) send(p *process, c command, on func(*reply)) {
	c.sent, c.finished = w.now, w.finished
	x := w.rnd.IntN(100)
	if w.calm {
		x = 0
	}
	switch {
	case x < 68:
		on(w.run(&c, p.name()))
	case x < 73:
		w.resend(p, c, on)
	case x < 82:
		r := w.run(&c, p.name()+"(slow reply) ")
		w.pending = append(w.pending, &pending{p, w.now, r, on})
	case x < 89:
		w.run(&c, p.name()+"(lost reply) ")
		w.noReply(p, on)
	case x < 95:
		w.trace("%s(late) %v %s", p.name(), c.op, &c)
		w.late = append(w.late, c)
		w.noReply(p, on)
	default:
		w.trace("%s(lost) %v %s", p.name(), c.op, &c)
		w.noReply(p, on)
	}
}

// resend sends two copies of a command, like a client whose connection breaks. The process receives
// the reply to the second one.
func (w *world) resend(p *process, c command, on func(*reply)) {
	switch w.rnd.IntN(3) {
	case 0:
		w.run(&c, p.name()+"(first copy) ")
	case 1:
		w.trace("%s(late first copy) %v %s", p.name(), c.op, &c)
		w.late = append(w.late, c)
	}
	r := w.run(&c, p.name()+"(second copy) ")
	r.again = true
	on(r)
}

// noReply ends a command without a reply: at once if the connection breaks, else after the timeout.
func (w *world) noReply(p *process, on func(*reply)) {
	if w.chance(50) {
		on(nil)
	} else {
		w.pending = append(w.pending, &pending{p, w.now, nil, on})
	}
}

// deliver passes on the reply of w.pending[i].
func (w *world) deliver(i int) {
	d := w.pending[i]
	w.pending = slices.Delete(w.pending, i, i+1)
	switch {
	case d.r == nil:
		w.now = max(w.now, d.sent+callTimeout)
		fallthrough
	case w.now-d.sent > callTimeout:
		w.trace("%stimeout", d.p.name())
		d.on(nil)
	default:
		w.trace("%sthe reply arrives", d.p.name())
		d.on(d.r)
	}
}

// arrive runs a late duplicate, and may keep it for later. A copy that arrives later than ended ids
// are remembered is dropped.
func (w *world) arrive() {
	i := w.rnd.IntN(len(w.late))
	c := w.late[i]
	again := w.chance(33)
	if w.now-c.sent >= rememberFor || w.finished-c.finished >= endedIDs-1 {
		w.late = slices.Delete(w.late, i, i+1)
		return
	}
	if !again {
		w.late = slices.Delete(w.late, i, i+1)
	}
	c.late = true
	w.run(&c, "late ")
}
