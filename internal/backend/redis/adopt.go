package redis

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Adopt sends adopt.lua. With ReplicaAcks it returns an error if too few replicas acknowledged the
// adoption.
func (b *Backend) Adopt(ctx context.Context, r backend.AdoptRequest) (backend.AdoptReply, error) {
	reply, sent, repeated, err := b.send.insistNoting(ctx, b.send.Ends, b.wire.Adopt(&r))
	var a backend.AdoptReply
	if err == nil {
		a, err = wire.DecodeAdopt(reply)
	}
	if err != nil {
		return backend.AdoptReply{Sent: sent, Repeated: repeated || conn.UnknownReply(err)}, err
	}
	a.Sent, a.Repeated = sent, repeated
	return a, nil
}

// Interim sends interim.lua.
func (b *Backend) Interim(ctx context.Context, r backend.InterimRequest) (stored bool, err error) {
	reply, _, err := b.send.insist(ctx, b.send.Ends, b.wire.Interim(&r))
	if err != nil {
		return false, err
	}
	return wire.DecodeInterim(reply)
}
