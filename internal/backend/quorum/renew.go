package quorum

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// tally counts the verdicts of the masters on one lease.
type tally struct {
	kept, lost int
	revoked    bool
	errs       []error
	failed     int
}

func (t *tally) add(i int, reply backend.RenewReply) {
	switch {
	case reply.Err != nil:
		t.errs[i] = reply.Err
		t.failed++
	case reply.Verdict == backend.VerdictKept:
		t.kept++
	case reply.Verdict == backend.VerdictRevoked:
		t.revoked = true //planted:quorum-revoked
	default:
		t.lost++
	}
}

// decided reports whether further replies cannot change the verdict. Revoke needs a majority, so
// each majority that keeps a lease has a master that knows of a revocation.
func (t *tally) decided(b *Backend) bool {
	left, refuse := len(t.errs)-t.kept-t.lost-t.failed, len(b.masters)-b.majority+1
	return t.revoked || t.kept >= b.majority || t.lost >= refuse || t.kept+left < b.majority && t.lost+left < refuse
}

// verdict returns the reply of the majority.
func (t *tally) verdict(b *Backend) backend.RenewReply {
	switch {
	case t.revoked:
		return backend.RenewReply{Verdict: backend.VerdictRevoked}
	case t.kept >= b.majority: //planted:quorum-renewed
		return backend.RenewReply{Verdict: backend.VerdictKept}
	case t.lost > len(b.masters)-b.majority:
		return backend.RenewReply{Verdict: backend.VerdictLost}
	}
	return backend.RenewReply{Err: b.failure(t.errs)}
}

func (b *Backend) tallies(n int) []tally {
	list := make([]tally, n)
	for i := range list {
		list[i].errs = make([]error, len(b.masters))
	}
	return list
}

// Renew extends leases on all masters, and returns when each has the verdict of a majority.
func (b *Backend) Renew(ctx context.Context, rs []backend.RenewRequest) []backend.RenewReply {
	all := b.tallies(len(rs))
	askUntil(ctx, b, nil, func(i int) ([]backend.RenewReply, error) {
		own, cancel := detached(ctx)
		defer cancel()
		sent := time.Now()
		replies := b.masters[i].Renew(own, rs)
		for _, reply := range replies { // of one command
			b.heard(i, sent, reply.Err)
		}
		if err := b.servers.mayVote(i, sent); err != nil { //planted:quorum-renewal-votes
			replies = slices.Clone(replies)
			for k := range replies {
				if replies[k].Verdict == backend.VerdictKept {
					replies[k].Err = err
				}
			}
		}
		return replies, nil
	}, func(i int, replies []backend.RenewReply, err error) bool {
		decided := true
		for k := range all {
			if err != nil {
				all[k].add(i, backend.RenewReply{Err: err})
				continue
			}
			all[k].add(i, replies[k])
			decided = decided && all[k].decided(b)
		}
		return decided
	})
	replies := make([]backend.RenewReply, len(rs))
	for k := range all {
		replies[k] = all[k].verdict(b)
	}
	return replies
}

// Extend renews one lease. The time that it returns is before the first send, because a master may
// have been asked then.
func (b *Backend) Extend(ctx context.Context, r backend.RenewRequest) (backend.RenewReply, time.Time) {
	sent, all := time.Now(), b.tallies(1)
	switch {
	case r.Token != 0:
		return backend.RenewReply{Err: errTickets}, sent
	case r.Lease > b.servers.longest:
		return backend.RenewReply{Err: b.tooLong(r.Lease)}, sent
	}
	askUntil(ctx, b, nil, func(i int) (backend.RenewReply, error) {
		reply, sent := b.masters[i].Extend(context.WithoutCancel(ctx), r)
		if err := b.servers.mayVote(i, sent); err != nil && reply.Verdict == backend.VerdictKept {
			reply.Err = err
		}
		return reply, nil
	}, func(i int, reply backend.RenewReply, err error) bool {
		if err != nil {
			reply.Err = err
		}
		all[0].add(i, reply)
		return all[0].decided(b)
	})
	return all[0].verdict(b), sent
}
