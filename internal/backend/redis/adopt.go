package redis

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Adopt sends adopt.lua. With ReplicaAcks it returns an error if too few replicas acknowledged the
// adoption.
func (b *Backend) Adopt(ctx context.Context, r backend.AdoptRequest) (backend.AdoptReply, error) {
	reply, sent, repeated, err := b.conn.insistNoting(ctx, b.conn.ends, b.wire.Adopt(&r))
	var a backend.AdoptReply
	if err == nil {
		a, err = wire.DecodeAdopt(reply)
	}
	if err != nil {
		return backend.AdoptReply{Sent: sent, Repeated: repeated || unknownReply(err)}, err
	}
	a.Sent, a.Repeated = sent, repeated
	return a, nil
}

// Interim sends interim.lua.
func (b *Backend) Interim(ctx context.Context, r backend.InterimRequest) (stored bool, err error) {
	reply, _, err := b.conn.insist(ctx, b.conn.ends, b.wire.Interim(&r))
	if err != nil {
		return false, err
	}
	return wire.DecodeInterim(reply)
}
