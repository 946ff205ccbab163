package quorum

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// ends counts the replies to a ReleaseRequest.
type ends struct {
	released, refused int
	errs              []error
}

func (e *ends) add(i int, reply backend.ReleaseReply, err error) {
	switch {
	case err != nil:
		e.errs[i] = err
	case reply.Released:
		e.released++
	default:
		e.refused++
	}
}

// reply returns the reply of the majority.
func (e *ends) reply(b *Backend) (r backend.ReleaseReply, err error) {
	switch {
	case e.released >= b.majority:
		r.Released = true
	case e.refused <= len(b.masters)-b.majority:
		r.Repeated = true
		err = b.failure(e.errs)
	}
	return r, err
}

// Release ends a hold on all masters. A master that does not confirm it gets it again later.
func (b *Backend) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	r.Plain = false // the token may be ahead of the clock of a master
	if r.Next != nil {
		return b.releaseAndAcquire(ctx, r)
	}
	e := ends{errs: make([]error, len(b.masters))}
	ask(b, func(i int) (backend.ReleaseReply, error) {
		return b.release(ctx, i, r)
	}, func(i int, reply backend.ReleaseReply, err error) bool {
		e.add(i, reply, err)
		return e.released >= b.majority || e.refused > len(b.masters)-b.majority
	})
	return e.reply(b)
}

// release releases on master i, and again later if that is not confirmed.
func (b *Backend) release(ctx context.Context, i int, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	m, sent := b.masters[i], time.Now()
	reply, err := m.Release(ctx, r)
	b.heard(i, sent, err)
	if err != nil {
		again := r
		again.Next, again.Repeated = nil, true
		m.ReleaseLater(again, time.Now().Add(releaseFor)) //planted:quorum-released-later
	}
	return reply, err
}

// releaseAndAcquire ends a hold and acquires the key again for r.Next, unless a process waits in the
// remote queue. The home is asked first, because it alone knows that. If it has given the key to
// another process, or does not reply within the time limit of a request, the others only release it,
// so that other processes get it.
func (b *Backend) releaseAndAcquire(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	sent := time.Now()
	next := *r.Next
	next.Floor = max(next.Floor, b.tokens.floor(sent))
	r.Next = &next
	home := b.home(r.Key, b.servers.failing())
	var first backend.ReleaseReply
	homeErr := backend.ErrClosed                                                                                           // if no master is asked
	askUntil(context.Background(), b, time.After(Limit(next.Lease)), func(i int) (reply backend.ReleaseReply, err error) { //planted:quorum-home-asked
		if i != home {
			return reply, nil
		}
		return b.release(ctx, home, r)
	}, func(i int, reply backend.ReleaseReply, err error) bool {
		if i == home {
			first, homeErr = reply, err
		}
		return i == home
	})
	passedOn := homeErr != nil || first.Next.Outcome != backend.OutcomeGranted

	e, v := ends{errs: make([]error, len(b.masters))}, make(votes, len(b.masters))
	askUntil(context.Background(), b, time.After(backend.CallTimeout-time.Since(sent)), func(i int) (backend.ReleaseReply, error) {
		if i == home {
			return first, homeErr
		}
		one := r
		if one.Next = nil; !passedOn {
			alone := next
			alone.Queue = false
			one.Next = &alone
		}
		return b.release(ctx, i, one)
	}, func(i int, reply backend.ReleaseReply, err error) bool {
		e.add(i, reply, err)
		if passedOn {
			return e.released >= b.majority || e.refused > len(b.masters)-b.majority
		}
		next, err := b.vote(i, reply.Next, err)
		v[i] = &vote{next, err}
		return v.count(granted) >= b.majority
	})
	reply, err := e.reply(b)
	if passedOn {
		if reply.Next = first.Next; homeErr != nil { // Next may be granted there
			reply.Next = backend.AcquireReply{Withdraw: true}
		}
		reply.Next.Sent, reply.Next.Repeated, reply.Next.RetryIn = sent, true, pause(0)
		return reply, err
	}
	if reply.Next, _ = b.result(ctx, &next, v, home, false, sent); reply.Next.Outcome == backend.OutcomeGranted {
		reply.Released, err = true, nil // a master grants only what it has released
	}
	return reply, err
}
