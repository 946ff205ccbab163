package redis

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Release sends release.lua. For a request with Next it sends rotate.lua, for a share
// release_share.lua.
func (b *Backend) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	sent := time.Now()
	switch {
	case r.Share.Limit > 0:
		l := detached(ctx, sent)
		reply, repeated, err := b.send.once(&l, b.send.Ends, b.wire.ReleaseShare(&r, wire.Cooldown(&r, sent)), sent)
		return decodeEnd(reply, repeated, err)
	case r.Next != nil:
		return b.rotate(ctx, &r, sent)
	}
	c := newCommand()
	c.ctx = detached(ctx, sent)
	reply, repeated, err := b.send.once(&c.ctx, b.send.Ends, b.wire.Release(&r, wire.Cooldown(&r, sent), &c.Room), sent)
	if err == nil {
		defer b.send.reuse(c)
	}
	return decodeEnd(reply, repeated, err)
}

// detached returns the ctx of a release, which the end of ctx does not cancel.
func detached(ctx context.Context, sent time.Time) conn.Limited {
	return conn.Limited{
		Context: ctx, End: sent.Add(backend.CallTimeout),
		Detached: true, //planted:release-outlives-ctx
	}
}

// decodeEnd decodes a reply of release.lua, release_share.lua or complete.lua. If the reply has another
// form, the effect of the script is unknown, so decodeEnd sets Repeated.
func decodeEnd(reply []any, repeated bool, err error) (r backend.ReleaseReply, _ error) {
	if err == nil {
		r, err = wire.DecodeEnd(reply)
	}
	r.Repeated = repeated || conn.UnknownReply(err)
	return r, err
}

func (b *Backend) rotate(ctx context.Context, r *backend.ReleaseRequest, sent time.Time) (a backend.ReleaseReply, err error) {
	l := detached(ctx, sent)
	reply, repeated, err := b.send.once(&l, b.send.Ends, b.wire.Rotate(r), sent)
	var nextErr error
	if err == nil {
		a, err, nextErr = wire.DecodeRotate(r, reply)
	}
	a.Repeated = repeated || conn.UnknownReply(err)
	a.Next.Sent, a.Next.Repeated = sent, a.Repeated || conn.UnknownReply(nextErr)
	if err == nil {
		err = nextErr
	}
	return a, err
}

// Complete sends complete.lua.
func (b *Backend) Complete(ctx context.Context, r backend.CompleteRequest) (backend.ReleaseReply, error) {
	sent := time.Now()
	reply, repeated, err := b.send.once(&conn.Limited{Context: ctx, End: sent.Add(backend.CallTimeout)}, b.send.Ends, b.wire.Complete(&r), sent)
	return decodeEnd(reply, repeated, err)
}
