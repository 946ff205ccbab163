package schedule

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// ticket has the fields of lockcore/ticket.go that the schedule needs.
type ticket struct {
	id, mode string
	token    int64
	attempt  int
	until    int64 // no process adopts it after this time
}

// transfer simulates Lease.Ticket: it extends the lease, and ends the hold locally. The process
// continues meanwhile.
func (p *process) transfer() {
	h, w := &p.hold, p.w
	id, life, d := h.id, p.life, max(h.lease, pick(w, []int64{3e6, 30e6}))
	c := command{op: renew, id: id, lease: d, retention: d + w.abandonedFor(h.mode)}
	w.send(p, c, func(rep *reply) {
		if rep == nil || p.life != life || !p.holds() || h.id != id {
			return
		}
		if rep.value != backend.VerdictKept {
			h.until = w.now
			return
		}
		w.trace("P%d makes a ticket of %s", p.n, id)
		t := ticket{id: id, mode: h.mode, token: h.token, attempt: h.attempt, until: w.now + 2*d}
		w.tickets = append(w.tickets, t)
		if p.state, p.hold = idle, (hold{}); w.kind == backend.KindOnce {
			p.transferred = &t
		}
	})
}

// answer stores the interim answer of the run that the process has transferred.
func (p *process) answer() {
	t := p.transferred
	p.transferred = nil
	p.w.send(p, command{op: interim, id: t.id, attempt: t.attempt, record: "answer of " + t.id}, func(*reply) {})
}

// adopt adopts the hold of a ticket, like lockcore/adopt.go. The ticket may be delivered again.
func (p *process) adopt() {
	w, sent := p.w, p.w.now
	i := w.rnd.IntN(len(w.tickets))
	t := w.tickets[i]
	if w.now > t.until || w.chance(40) {
		w.tickets = slices.Delete(w.tickets, i, i+1)
	}
	lease := pick(w, []int64{1e6, 3e6, 30e6})
	c := command{op: adopt, id: w.id('R'), from: t.id, locker: p.locker, lease: lease, retention: lease + w.abandonedFor(t.mode)}
	abandon := func(id string, token int64) {
		until := sent + max(lease, callTimeout)
		p.cleanups = append(p.cleanups, &cleanup{
			command: command{op: release, id: id, token: token, keep: w.abandonedFor(t.mode), abandon: true, repeated: true}, until: until,
		})
	}
	p.state = awaiting
	w.send(p, c, func(rep *reply) {
		if p.state = idle; rep == nil {
			abandon(c.id, 0)
			return
		}
		switch a, _ := rep.value.(backend.AdoptReply); {
		case a.Verdict == backend.VerdictRevoked:
			if abandon(t.id, t.token); rep.again {
				abandon(c.id, 0)
			}
		case a.Verdict != backend.VerdictKept:
		case w.now-sent >= lease-lease/9:
			w.trace("  too late")
			abandon(c.id, 0)
		default:
			p.state = holding
			p.hold = hold{
				id: c.id, mode: t.mode, first: a.Token, token: a.Token, published: a.Token, lease: lease, until: sent + lease,
				attempt: a.Attempt, since: w.now,
			}
			w.invariants.begins(c.id, a.Token, "")
		}
	})
}
