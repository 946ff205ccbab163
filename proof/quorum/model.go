package quorum

// Mistake is a rule that a Model breaks.
type Mistake string

// The mistakes.
const (
	FromReply       Mistake = "the validity counts from the reply"
	MinorityGrant   Mistake = "one vote is enough"
	NoWithdrawal    Mistake = "a request that was given up is not withdrawn"
	SilentKept      Mistake = "it is withdrawn only from the servers that have replied"
	SameID          Mistake = "the next request has the same id, and late replies to the one before count"
	NoRaise         Mistake = "the smaller token is not raised"
	RaiseUncounted  Mistake = "the grant does not wait until a majority has its token"
	Resurrection    Mistake = "a renewal grants a lost lease again"
	LateRenewal     Mistake = "it does so, and its reply counts after the validity is over"
	MinorityRenewal Mistake = "one server that kept the lease is enough"
	MuteRenewal     Mistake = "a renewal counts at a server that does not vote yet"
	OldToken        Mistake = "a repeat gets the token that the server granted when it did not vote yet"
	EmptyVotes      Mistake = "a server that has restarted without data votes at once"
	OldVotes        Mistake = "a server that has restarted with old data votes at once"
	Forgetful       Mistake = "a server does not remember that a request has ended"
)

// The properties.
const (
	Alone  = "alone"
	Tokens = "tokens"
	Ends   = "ends"
)

const (
	nServers  = 3
	nRequests = 2 // of a process
)

// Model has the bounds of a search. Times are in ticks, and tokens are times of a clock.
type Model struct {
	Mistake  Mistake
	Ticks    int           // the end
	Lease    int           // how long a server keeps a grant, and a process its validity
	Memory   int           // how long a free key remembers its last token
	Rate     int           // what a clock advances in a tick; 0: all tokens are equal
	Block    int           // tokens of a grant
	Ahead    [nServers]int // how far the clock of a server is ahead
	Lead     int           // how far a proposal is ahead of the clock of its process, if there is one; 0: none
	Sends    [2]int        // how often a process requests the key: each is a new request or the last one again
	Renewals int           // of a process
	Restart  bool          // one server loses its data
	OldData  bool          // it has older data then, otherwise none
	Down     bool          // the last server never replies
}

// data is what a server stores of the key.
type data struct {
	owner uint8 // the request that has the key, from 1; 0: the key is free
	end   uint8 // of the lease, or of the memory of a free key
	token uint8 // the first one of the owner, or the last one used
	ended uint8 // requests that have ended, a bit each
}

// site is a server, with the messages to it and from it.
type site struct {
	data, disk  data
	saved       uint8    // 1: a restart loads disk
	mute        uint8    // its votes do not count until then
	told        uint8    // requests whose end was sent to it, a bit each
	votes, kept [2]uint8 // by process: the token that the server granted; 1: the server has renewed
}

// The phases of a process.
const (
	idle = iota
	asking
	raising
	holding
	over // the validity has ended, but renewals count: a mistake
)

type process struct {
	phase, sends, ids uint8
	sent              uint8 // before the first send of the last request; 0: its validity would be over
	token, left       uint8 // of the hold, and how many follow it in the block
	until             uint8 // the end of the validity
	renewals, renewed uint8 // how many, and when the last one was sent; 0: it was counted
	requests          [nRequests]request
}

// request is what was sent of a request: the floor of its token, and the last token used. gone is 1
// if the process has given it up or released it.
type request struct{ floor, used, gone uint8 }

type state struct {
	now   uint8
	last  uint8 // the greatest token of any hold
	wrong uint8 // 1: a hold began whose token is not greater
	fault uint8 // 1: a server has saved its data; 2: it has restarted
	procs [2]process
	sites [nServers]site
}

// step is what process or server i does with request n. by is time, process, server, or request: what
// a server does with a message.
type step struct {
	by, what string
	i, n     int
}

// steps calls next with each state that follows s.
func (m *Model) steps(s *state, next func(step, *state)) {
	var t state
	emit := func(possible bool, by, what string, i, n int, change func(*state)) {
		if possible {
			t = *s
			change(&t)
			if m.settle(&t); t != *s {
				next(step{by, what, i, n}, &t)
			}
		}
	}
	emit(int(s.now) < m.Ticks, "time", "", 0, 0, func(t *state) { t.now++ })
	for p := range s.procs {
		q, n := &s.procs[p], s.lastOf(p)
		more, kept, raised := int(q.sends) < m.Sends[p], uint8(0), 0
		for i, v := range s.sites {
			kept += v.kept[p]
			if q.phase == raising && v.votes[p] == q.token {
				raised++
			}
			for k := range i + 1 {
				votes := q.phase == asking && min(v.votes[p], s.sites[k].votes[p]) > 0
				emit(votes && (i > k || m.Mistake == MinorityGrant), "process", "counts its votes", p, n, func(t *state) { m.count(t, p, i, k) })
			}
		}
		for lead := 0; lead <= m.Lead; lead += max(m.Lead, 1) {
			emit(more && (q.phase == idle || q.phase == over), "process", "asks", p, n+1, func(t *state) {
				m.ask(t, p)
				t.procs[p].requests[q.ids].floor = uint8(1 + min(lead, 1)*(int(t.now)*m.Rate+lead))
				t.procs[p].ids++
			})
		}
		emit(more && q.phase == asking, "process", "asks again", p, n, func(t *state) { m.ask(t, p) })
		emit(q.phase == raising && (raised > 1 || m.Mistake == RaiseUncounted), "process", "counts the raise", p, n, func(t *state) { m.hold(t, p) })
		emit(q.phase == holding && q.left > 0, "process", "hands off", p, n, func(t *state) { t.procs[p].left--; m.begin(t, p, q.token+1) })
		emit(q.phase == holding && int(q.renewals) < m.Renewals, "process", "renews", p, n, func(t *state) {
			q := t.clear(p, holding)
			q.renewals, q.renewed = q.renewals+1, t.now
		})
		emit(kept > 1 || kept > 0 && m.Mistake == MinorityRenewal, "process", "counts the renewal", p, n, func(t *state) {
			q := t.clear(p, holding)
			q.until, q.renewed = max(q.until, q.renewed+uint8(m.Lease)), 0
		})
		emit(q.phase != idle, "process", "ends", p, n, func(t *state) { m.leave(t, p) })
	}
	for i := range s.sites {
		v, up := &s.sites[i], !m.Down || i < nServers-1
		for n := range 2 * nRequests {
			p := n / nRequests
			q, r, last := &s.procs[p], &s.procs[p].requests[n%nRequests], n == s.lastOf(p)
			emit(up && r.floor > 0, "request", "gets the request", i, n, func(t *state) { m.acquire(t, i, n) })
			raised := last && q.phase == raising && v.votes[p] > 0 && int(v.data.owner) == n+1
			emit(up && raised, "request", "gets the raise", i, n, func(t *state) { t.sites[i].data.token, t.sites[i].votes[p] = q.token, q.token })
			renewed := last && q.renewed > 0 || q.renewals > 0 && m.Mistake == Resurrection
			emit(up && renewed, "request", "gets the renewal", i, n, func(t *state) { m.renew(t, i, n) })
			emit(up && v.told>>n&1 == 1, "request", "gets the end", i, n, func(t *state) { m.end(t, i, n) })
		}
		emit(m.OldData && s.fault == 0, "server", "saves its data", i, 0, func(t *state) { t.fault, t.sites[i].saved, t.sites[i].disk = 1, 1, v.data })
		emit(m.Restart && !m.OldData && s.fault == 0 || v.saved == 1, "server", "restarts", i, 0, func(t *state) { m.restart(t, i) })
	}
}

// lastOf returns the number of the last request of a process, from 0.
func (s *state) lastOf(p int) int { return p*nRequests + int(s.procs[p].ids) - 1 }

// clear sets the phase of a process, and forgets the replies that it got.
func (s *state) clear(p int, phase uint8) *process {
	for i := range s.sites {
		s.sites[i].votes[p], s.sites[i].kept[p] = 0, 0
	}
	s.procs[p].phase = phase
	return &s.procs[p]
}

// ask sends a request.
func (m *Model) ask(t *state, p int) {
	if q := &t.procs[p]; m.Mistake != SameID || q.phase != asking {
		t.clear(p, asking)
	}
	q := &t.procs[p]
	q.sends, q.sent, q.renewed = q.sends+1, t.now, 0
}

// count counts the votes of two servers. If their tokens differ, the smaller one is raised.
func (m *Model) count(t *state, p, i, k int) {
	a, b := t.sites[i].votes[p], t.sites[k].votes[p]
	q := t.clear(p, raising)
	if q.token = max(a, b); a == b || m.Mistake == NoRaise {
		m.hold(t, p)
		return
	}
	t.sites[i].votes[p], t.sites[k].votes[p] = a, b
}

// hold begins the first hold of a grant.
func (m *Model) hold(t *state, p int) {
	q := t.clear(p, holding)
	q.until, q.left = q.sent+uint8(m.Lease), uint8(m.Block-1)
	if m.Mistake == FromReply {
		q.until = t.now + uint8(m.Lease)
	}
	q.sent = 0
	m.begin(t, p, q.token)
}

// begin begins a hold.
func (m *Model) begin(t *state, p int, token uint8) {
	if token <= t.last && m.Rate > 0 {
		t.wrong = 1
	}
	t.procs[p].token, t.last = token, max(t.last, token)
}

// leave ends the last request of a process: a release, or a withdrawal.
func (m *Model) leave(t *state, p int) {
	q, n := &t.procs[p], t.lastOf(p)
	r := &q.requests[q.ids-1]
	if r.gone = 1; q.phase >= holding {
		r.used = q.token
	}
	for i := range t.sites {
		if v := &t.sites[i]; q.phase >= holding || m.Mistake != NoWithdrawal && (m.Mistake != SilentKept || v.votes[p] > 0) {
			v.told |= 1 << n
		}
	}
	t.clear(p, idle)
	q.sent, q.token, q.left, q.until, q.renewed = 0, 0, 0, 0, 0
}

// acquire is the vote of server i on request n.
func (m *Model) acquire(t *state, i, n int) {
	v, q, p := &t.sites[i], &t.procs[n/nRequests], n/nRequests
	asks := n == t.lastOf(p) && q.phase == asking && q.sent > 0
	switch {
	case v.data.owner == 0 && (v.data.ended>>n&1 == 0 || m.Mistake == Forgetful):
		v.data.owner, v.data.token = uint8(n+1), max(v.data.token+1, m.clock(t, i), q.requests[n%nRequests].floor)
		if m.Rate == 0 {
			v.data.token = 1
		}
	case int(v.data.owner) != n+1 || !asks: // a late duplicate would only keep the lease for longer
		return
	case m.Rate > 0 && m.Mistake != OldToken:
		v.data.token = max(v.data.token, m.clock(t, i))
	}
	if v.data.end = t.now + uint8(m.Lease); asks && v.mute <= t.now {
		v.votes[p] = v.data.token
	}
}

func (m *Model) renew(t *state, i, n int) {
	v, q, p := &t.sites[i], &t.procs[n/nRequests], n/nRequests
	if v.data.owner == 0 && (m.Mistake == Resurrection || m.Mistake == LateRenewal) {
		if v.data.owner = uint8(n + 1); m.Mistake == LateRenewal {
			v.data.ended &^= 1 << n
		}
	}
	if int(v.data.owner) != n+1 {
		return
	}
	v.data.end = t.now + uint8(m.Lease)
	if n == t.lastOf(p) && q.renewed > 0 && (v.mute <= t.now || m.Mistake == MuteRenewal) {
		v.kept[p] = 1
	}
}

// end is a withdrawal or a release.
func (m *Model) end(t *state, i, n int) {
	d := &t.sites[i].data
	if int(d.owner) == n+1 {
		d.owner, d.token, d.end = 0, max(d.token, t.procs[n/nRequests].requests[n%nRequests].used), t.now+uint8(m.Memory)
		d.ended |= 1 << n
	}
}

// restart replaces the data of a server. Without OldData the disk is empty.
func (m *Model) restart(t *state, i int) {
	v := &t.sites[i]
	empty := v.disk == data{}
	if m.Mistake != EmptyVotes && m.Mistake != OldVotes || empty != (m.Mistake == EmptyVotes) {
		v.mute = t.now + uint8(m.Lease)
	}
	v.data, v.disk, v.saved, t.fault = v.disk, data{}, 0, 2
}

func (m *Model) clock(t *state, i int) uint8 { return uint8(1 + int(t.now)*m.Rate + m.Ahead[i]) }

// settle applies what time has ended, and removes what changes nothing any more.
func (m *Model) settle(t *state) {
	for i := range t.sites {
		v := &t.sites[i]
		d := &v.data
		if d.owner > 0 && d.end <= t.now { // without a release
			d.token += uint8(m.Block - 1)
			m.end(t, i, int(d.owner)-1)
		}
		if d.owner == 0 && (m.Rate == 0 || d.end <= t.now || d.token < m.clock(t, i)) {
			d.token, d.end = 0, 0
		}
		if v.mute <= t.now {
			v.mute = 0
		}
	}
	for p := range t.procs {
		q := &t.procs[p]
		late := q.sent > 0 && int(q.sent)+m.Lease <= int(t.now) && m.Mistake != FromReply
		switch {
		case q.phase == holding && q.until <= t.now && m.Mistake == LateRenewal:
			q.phase, q.until, q.left = over, 0, 0
		case q.phase == holding && q.until <= t.now, late && (q.phase == raising || int(q.sends) == m.Sends[p]):
			m.leave(t, p)
		case late:
			t.clear(p, asking).sent = 0
		}
	}
}

// broken returns the property that a state breaks, or an empty string.
func (m *Model) broken(s *state) string {
	a, b := &s.procs[0], &s.procs[1]
	switch {
	case a.phase == holding && b.phase == holding:
		return Alone
	case s.wrong == 1, a.phase == holding && a.token < s.last, b.phase == holding && b.token < s.last:
		return Tokens
	}
	for _, v := range s.sites {
		if n := int(v.data.owner) - 1; n >= 0 && s.procs[n/nRequests].requests[n%nRequests].gone == 1 && (v.told>>n&1 == 0 || v.data.ended>>n&1 == 1) {
			return Ends
		}
	}
	return ""
}
