package lockcore

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// Adopt takes over the hold that [Lease.Ticket] has transferred. Each ticket works once. The
// returned lease behaves like one of Acquire or Claim with the terms t. Its fencing token is
// greater than all tokens of the previous hold. The run of a once key continues: Attempt, Abandoned
// and the fingerprint are those of the previous hold.
//
// Adopt does not wait for another holder, so t.Wait and t.MaxWaiting have no effect. It returns
// within 1 s. Every error satisfies errors.Is(err, ErrNotRun):
//
//   - ErrTicket: the text is not a ticket, or it is a ticket of a Locker with another prefix
//   - ErrLost: the ticket was used, has expired or is forged, or its hold has ended
//   - ErrRevoked: the hold was revoked. The key is then abandoned.
//   - ErrUnavailable: Redis did not reply, or too few replicas acknowledged; see below. If ctx
//     ended meanwhile, the error also matches [context.Cause] of ctx.
//   - ErrClosed, ErrRecord, an error of t.Validate, or [context.Cause] of ctx
//
// A message queue may deliver a ticket twice. Then one Adopt succeeds, and the other returns
// ErrLost. That process can call Acquire or Claim, which waits until the adopted lease ends.
//
// Other calls of this process wait for the adopted hold as for a hold of another process.
//
// After ErrUnavailable the ticket may be used up. The Locker then abandons the hold asynchronously,
// so that the next call can take the key over before the lease expires. If the command never
// arrived, the ticket still works.
func (l *Locker) Adopt(ctx context.Context, ticket string, t Terms) (*Lease, error) {
	key, from, err := l.readTicket(ticket)
	if err := errtext.Join(t.check(), err); err != nil {
		return nil, errtext.Wrap(ErrNotRun, err)
	}
	if ctx.Err() != nil {
		return nil, errtext.Wrap(ErrNotRun, context.Cause(ctx))
	}
	if !l.startCall() {
		return nil, ErrClosed
	}
	defer l.backend.Report()
	defer l.endCall()
	c := &call{l: l, kind: event.Kind(key.Kind), key: key.Name, terms: t, keep: from.keep, atMostOnce: from.atMostOnce, fixed: access.Fixed(ctx), ctx: ctx, start: time.Now()}
	c.terms.fill(&l.terms)
	if l.observer != nil {
		c.ctx = l.observer.Start(ctx, event.Acquisition{Kind: c.kind, Name: c.terms.Name, Key: c.key, Backend: l.backend.Name(), Locker: l.id})
	}
	h, err := c.adopt(key, from)
	if l.observer != nil {
		reported := false
		defer func() {
			if !reported && h != nil { // the Observer panicked
				_ = h.firstLease().Abandon(c.ctx)
			}
		}()
		c.report(h, nil, err)
		reported = true
	}
	if err != nil {
		return nil, err
	}
	return h.firstLease(), nil
}

// adopt sends the request and starts the hold. A grant that no hold can use is abandoned, not
// withdrawn, because the work of the previous hold may be half done.
//
// The hold gets a keyQueue and a shard that no call can find. The real queue of the key may have a
// leader, which waits for this hold like for a hold of another process.
func (c *call) adopt(key backend.Key, from ticketData) (*hold, error) {
	l := c.l
	r := backend.AdoptRequest{
		Key: &key, From: from.id, ID: rand.Text(), Holder: l.storedHolder(c.ctx, c.fixed), Lease: c.terms.Lease,
		Retention: c.terms.Lease + markFor(c.keep, c.atMostOnce),
	}
	reply, err := l.backend.Adopt(c.ctx, r)
	abandon := func(id string, token int64) {
		end := reply.Sent.Add(max(c.terms.Lease, backend.CallTimeout))
		l.backend.ReleaseLater(backend.ReleaseRequest{
			Key: &key, ID: id, Token: token, Retention: markFor(c.keep, c.atMostOnce), Abandon: true, Repeated: true,
		}, end)
	}
	switch {
	case err != nil:
		if reply.Repeated {
			abandon(r.ID, 0)
		}
		if ctx := c.ctx; ctx.Err() != nil {
			return nil, errtext.Join(cannotAdopt(unavailable(err)), context.Cause(ctx))
		}
		return nil, cannotAdopt(unavailable(err))
	case reply.Verdict == backend.VerdictRevoked:
		abandon(from.id, from.token)
		if reply.Repeated { // the first copy may have adopted the hold before the revocation
			abandon(r.ID, 0)
		}
		return nil, cannotAdopt(ErrRevoked)
	case reply.Verdict != backend.VerdictKept:
		return nil, cannotAdopt(errtext.Prefix("the ticket was used, has expired, or is forged", ErrLost))
	}
	now := time.Now()
	q := &keyQueue{shard: &shard{l: l}, key: key, lastReply: noReply}
	g := &grant{
		l: l, queue: q, id: r.ID, leaseTerm: c.terms.Lease, fixed: c.fixed, keep: c.keep, atMostOnce: c.atMostOnce, fingerprint: reply.Fingerprint,
		since: now, granted: reply.GrantedAt.UnixMicro(), firstToken: reply.Token,
		attempt:   int32(reply.Attempt), //nolint:gosec // the backend bounds it
		abandoned: reply.Abandoned, sent: reply.Sent, lease: c.terms.Lease, requestedBy: c,
	}
	q.grant = g
	if !l.addGrant(g) {
		abandon(r.ID, 0)
		return nil, ErrClosed
	}
	if !g.fixed {
		l.watchdog.add(g, now)
	}
	h := g.startHold(c)
	if h == nil { // the reply arrived after the end of the lease
		g.close()
		abandon(r.ID, 0)
		l.removeGrant(g)
		return nil, cannotAdopt(ErrLost)
	}
	if reply.Parked {
		l.seeParked(&q.key, access.ParkedHeld)
	}
	return h, nil
}

// interim stores answer as the interim answer of a once key. It returns ErrReleased if ctx does not
// carry the hold of the key, or if Ticket has not transferred that hold. It does nothing if the run
// has ended since then.
func (l *Locker) interim(ctx context.Context, key string, answer []byte) error {
	e := entryIn(ctx, l, event.KindOnce, key)
	if e == nil || !e.of.lease.Transferred() {
		return ErrReleased
	}
	g := e.of.grant
	_, err := l.backend.Interim(context.WithoutCancel(ctx), backend.InterimRequest{
		Key: &g.queue.key, ID: g.id, Attempt: int(g.attempt), Answer: answer,
	})
	if err != nil {
		return unavailable(err)
	}
	return nil
}
