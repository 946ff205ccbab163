package schedule

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	shortPause = 10_000    // µs, before a repeat
	pollTime   = 2_000_000 // µs, the longest time between two requests of a waiter
	extraRetry = 3600e6    // µs: the release of a once key is retried for this long after the lease
)

// state is the activity of a process.
type state uint8

const (
	idle       state = iota
	requesting       // its request is to be sent
	awaiting         // a command is under way
	waiting          // the key is busy
	holding          // it has the key
	completing       // its completion got no reply
)

// process sends commands as lockcore and backend/redis do.
type process struct {
	w           *world
	n           int
	life        int // restarts
	locker      string
	listening   bool
	state       state
	req         request
	hold        hold
	cleanups    []*cleanup
	transferred *ticket // of a once key: its interim answer is to be stored
	marked      int64   // when it marked parked entries
	quits       bool    // makes no new request
}

// request has the fields of lockcore/request.go that the schedule needs.
type request struct {
	id                           string
	lease                        int64
	mode                         string
	share                        backend.Share // zero: the key alone
	queue                        bool          // it wants to enter the queue
	queued, repeated, unresolved bool
	signal                       bool
	nextTry                      int64
}

// hold has the fields of lockcore/grant.go that the schedule needs.
type hold struct {
	id, mode     string
	share        backend.Share
	first, token int64
	attempt      int
	published    int64
	lease, until int64
	repeated     bool
	plain        bool
	since        int64 // when the grant arrived
	revoked      bool  // a notification of the revocation arrived
}

// cleanup has the fields of backend/cleanup that the schedule needs.
type cleanup struct {
	command
	blocks bool  // the next request waits until it is confirmed
	until  int64 // it is useless after this time; 0: no end
	busy   bool  // a try is under way
}

// reply is the reply to a command: the value that package backend returns.
type reply struct {
	value any
	again bool // the command was sent twice
}

// acquired returns the reply to an acquire, or to that of a rotation.
func (r *reply) acquired() backend.AcquireReply {
	if rotated, ok := r.value.(backend.ReleaseReply); ok {
		return rotated.Next
	}
	a, _ := r.value.(backend.AcquireReply)
	return a
}

var processNames = [...]string{"P0 ", "P1 ", "P2 ", "P3 "}

func (p *process) name() string {
	if p == nil {
		return "operator "
	}
	return processNames[p.n]
}

// restart replaces the process by a new one, which has no state of the previous one.
func (p *process) restart() {
	p.life++
	p.locker, p.listening, p.state, p.cleanups, p.hold = p.w.id('L'), true, idle, nil, hold{}
	p.transferred = nil
	p.w.pending = slices.DeleteFunc(p.w.pending, func(d *pending) bool { return d.p == p })
}

func (p *process) holds() bool { return p.state == holding && p.w.now < p.hold.until }

// notify receives a notification.
func (p *process) notify(n *backend.Notification) {
	switch {
	case n.Event == backend.EventRevoked:
		p.hold.revoked = p.hold.revoked || p.state == holding && p.hold.id == n.Request
	case n.Event == backend.EventTurn && p.req.id == n.Request:
		p.req.signal = true
	case n.Event == backend.EventCooling && p.req.id == n.Request && p.w.rates && p.state == waiting:
		p.req.nextTry = min(p.req.nextTry, p.w.now+n.In.Microseconds())
	}
}

// act does one random thing that fits the state of the process.
func (p *process) act() {
	w := p.w
	if len(p.cleanups) > 0 && w.chance(35) {
		p.cleanUp()
		return
	}
	if p.transferred != nil && w.chance(30) {
		p.answer()
		return
	}
	switch p.state {
	case idle:
		switch {
		case p.quits:
		case len(w.tickets) > 0 && w.chance(60):
			p.adopt()
		default:
			p.begin()
		}
	case requesting:
		switch {
		case p.blocked():
			p.cleanUp()
		case w.chance(8):
			p.cancel()
		default:
			p.sendRequest()
		}
	case awaiting:
		if i := slices.IndexFunc(w.pending, func(d *pending) bool { return d.p == p }); i >= 0 && w.chance(60) {
			w.deliver(i)
		}
	case waiting:
		switch {
		case p.req.signal || w.now >= p.req.nextTry || w.chance(10):
			p.sendRequest()
		case w.chance(12):
			p.cancel()
		}
	case holding:
		p.useHold()
	case completing:
		p.complete(true)
	}
}

func (p *process) begin() {
	w := p.w
	p.req = request{id: w.id('R'), lease: pick(w, []int64{1e6, 3e6, 30e6}), mode: exclusive, queue: w.chance(85)}
	if w.kind == backend.KindOnce {
		p.req.mode = pick(w, []string{atLeastOnce, atLeastOnce, atMostOnce})
	}
	if w.shares && w.chance(65) {
		p.req.share = pick(w, []backend.Share{{Limit: backend.Unlimited, Weight: 1}, {Limit: 2, Weight: 1}, {Limit: 3, Weight: 1}, {Limit: 3, Weight: 2}, {Limit: 3, Weight: 3}})
	}
	if w.rates && w.chance(70) {
		p.req.share = pick(w, []backend.Share{{}, {}, {Limit: 2, Weight: 1}, {Limit: 3, Weight: 2}})
		p.req.share.Rate = w.withCost(1, 1, 1, 2, w.rated.rate.Burst+2)
	}
	p.state = requesting
}

// blocked reports whether a withdrawal must be confirmed before the next request.
func (p *process) blocked() bool {
	return slices.ContainsFunc(p.cleanups, func(c *cleanup) bool { return c.blocks })
}

func (p *process) sendRequest() {
	if p.blocked() {
		p.cleanUp()
		return
	}
	r := &p.req
	r.signal, p.state = false, awaiting
	sent := p.w.now
	c := command{op: acquire, id: r.id, locker: p.locker, lease: r.lease, retention: r.lease + p.w.abandonedFor(r.mode), mode: r.mode, queue: r.queue, share: r.share}
	if r.share.Throttled() {
		c.calls = 1 + p.w.rnd.IntN(4)
	}
	c.plain = r.share.Alone() && !r.queued && !r.repeated && !r.unresolved
	c.many = c.plain && r.mode == exclusive && p.w.chance(50)
	p.w.send(p, c, func(rep *reply) { p.replied(sent, rep) })
}

// abandonedFor has the form of markFor in lockcore.
func (w *world) abandonedFor(mode string) int64 {
	if mode == atMostOnce {
		return max(w.keep, 3*w.abandoned)
	}
	return max(w.keep, w.abandoned)
}

// replied receives the reply to the request.
func (p *process) replied(sent int64, rep *reply) {
	r, now := &p.req, p.w.now
	r.unresolved = rep == nil
	if rep == nil {
		r.repeated, p.state = true, requesting
		return
	}
	r.queued, r.repeated = r.queued || r.queue, r.repeated || rep.again
	a := rep.acquired()
	switch a.Outcome {
	case backend.OutcomeGranted:
		p.granted(sent, &a)
	case backend.OutcomeDone:
		r.queued = false
		p.cancel()
	case backend.OutcomeEnded:
		p.reissue()
	case backend.OutcomeAdmitted:
		r.queued, r.unresolved = false, false
		p.cancel()
	case backend.OutcomeBusy:
		p.state, r.nextTry = waiting, now+max(shortPause, min(a.Remaining.Microseconds()+25_000, pollTime))
		switch {
		case r.share.Rate.N == 0:
		case a.Place == 1:
			r.nextTry = now + max(1000, min(a.Remaining.Microseconds(), pollTime))
		case a.Place == 2:
			r.nextTry = now + min(a.Remaining.Microseconds()+250_000, pollTime)
		}
	default:
		p.cancel()
	}
}

func (p *process) granted(sent int64, a *backend.AcquireReply) {
	r := &p.req
	if p.w.now-sent >= r.lease-r.lease/9 {
		p.w.trace("  too late")
		p.reissue()
		return
	}
	if p.w.chance(4) && !p.w.calm { // the call has ended before the grant arrived
		r.unresolved = true
		p.cancel()
		return
	}
	p.state = holding
	p.hold = hold{
		id: r.id, mode: r.mode, share: r.share, first: a.Token, token: a.Token, published: a.Token, lease: r.lease, until: sent + r.lease, repeated: r.repeated, plain: a.Plain, since: p.w.now,
		attempt: a.Attempt,
	}
	p.w.invariants.begins(r.id, a.Token, a.Phase)
}

// cancel ends the request.
func (p *process) cancel() {
	if r := &p.req; r.queued || r.unresolved || r.repeated {
		p.withdraw()
	}
	p.req, p.state = request{}, idle
}

func (p *process) withdraw() {
	r := &p.req
	c := command{op: withdraw, id: r.id, locker: p.locker, keep: p.w.keep, repeated: r.repeated, share: r.share}
	p.cleanups = append(p.cleanups, &cleanup{command: c, blocks: r.unresolved || r.repeated})
}

// reissue withdraws the request and gives it a new id.
func (p *process) reissue() {
	r := &p.req
	r.unresolved, r.repeated = true, true
	p.withdraw()
	*r = request{id: p.w.id('R'), lease: r.lease, mode: r.mode, share: r.share, queue: r.queue}
	p.state = requesting
}

// cleanUp tries the first cleanup that is not under way.
func (p *process) cleanUp() {
	w := p.w
	p.cleanups = slices.DeleteFunc(p.cleanups, func(c *cleanup) bool { return c.until != 0 && w.now > c.until && !c.busy })
	i := slices.IndexFunc(p.cleanups, func(c *cleanup) bool { return !c.busy })
	if i < 0 {
		return
	}
	c := p.cleanups[i]
	c.busy = true
	w.send(p, c.command, func(rep *reply) {
		c.busy = false
		if rep == nil {
			c.repeated = true
			return
		}
		p.cleanups = slices.DeleteFunc(p.cleanups, func(o *cleanup) bool { return o == c })
	})
}

// parkOrUnpark sends a command of a worker for a parked task. It is independent of what the process
// does with the key.
func (p *process) parkOrUnpark() {
	w, entries := p.w, []string{"a 1", "a 2", "b 1", "b 2"}
	c := command{op: park, locker: p.locker, entry: pick(w, entries), keep: pick(w, []int64{1e6, 60e6, 3600e6})}
	if w.chance(40) {
		c = command{op: unpark, woken: w.rnd.IntN(3), prefix: pick(w, []string{"", "a", "b"})}
		for range w.rnd.IntN(4) {
			c.remove = append(c.remove, pick(w, entries))
		}
		if w.chance(50) {
			c.marked = p.marked
		}
	}
	w.send(p, c, func(r *reply) {
		if r != nil {
			if u, _ := r.value.(backend.UnparkReply); len(u.Wake) > 0 {
				p.marked = u.Marked
			}
		}
	})
}

func (p *process) crash() {
	p.w.trace("P%d crashes", p.n)
	p.restart()
}
