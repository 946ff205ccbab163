package redis

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Adopt sends adopt.lua. With ReplicaAcks it returns an error if too few replicas acknowledged the
// adoption.
func (b *Backend) Adopt(ctx context.Context, r backend.AdoptRequest) (backend.AdoptReply, error) {
	reply, sent, repeated, err := b.conn.insistNoting(ctx, b.conn.ends, adoptScript, r.Key.Stored[:1],
		r.From, r.ID, b.o.Locker, micros(r.Lease), r.Holder, millis(r.Retention))
	if err != nil {
		return backend.AdoptReply{Sent: sent, Repeated: repeated}, err
	}
	a := backend.AdoptReply{Sent: sent, Repeated: repeated}
	verdict, err := number(reply, 0)
	switch {
	case err != nil:
	case verdict == 0:
		return a, nil
	case verdict == 2:
		a.Verdict = backend.VerdictRevoked
		return a, nil
	default:
		a.Verdict, a.Attempt, a.Abandoned, a.Parked, a.Fingerprint = backend.VerdictKept, small(reply, 2), small(reply, 3) == 1, isSet(reply, 4), text(reply, 5)
		a.Token, err = number(reply, 1)
		a.GrantedAt = time.UnixMicro(a.Token) // grant.lua makes the token from the server's time
	}
	if err == nil && a.Token >= 1<<53 { // as in decodeAcquire
		err = &replyError{"lockcore: unexpected reply: the token is too large"}
	}
	if err != nil {
		return backend.AdoptReply{Sent: sent, Repeated: true}, err
	}
	return a, nil
}

// Interim sends interim.lua.
func (b *Backend) Interim(ctx context.Context, r backend.InterimRequest) (stored bool, err error) {
	reply, _, err := b.conn.insist(ctx, b.conn.ends, interimScript, r.Key.Stored[:], r.ID, r.Attempt, r.Answer, b.channels)
	if err != nil {
		return false, err
	}
	n, err := number(reply, 0)
	return n == 1, err
}
