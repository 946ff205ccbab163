package redis

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Acquire sends acquire.lua, or acquire_share.lua for a share.
func (b *Backend) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	limit, start := min(r.Timeout, callTimeout), time.Now()
	sent := start
	if b.cleanups.blocks(r.First) {
		if err := b.cleanups.before(ctx, r.Key.Stored[0], r.First, limit); err != nil {
			return backend.AcquireReply{Sent: sent}, err
		}
		sent = time.Now()
		limit = min(r.Timeout-sent.Sub(start), callTimeout) // r.Timeout includes the wait for withdrawals
	}
	if r.Share.Limit > 0 {
		reply, repeated, err := b.conn.send(&limited{Context: ctx, end: sent.Add(limit)}, b.conn.calls, b.wire.AcquireShare(&r), sent)
		if err != nil {
			return backend.AcquireReply{Sent: sent, Repeated: repeated}, err
		}
		return decodeAcquire(&r, reply, sent, repeated)
	}
	c := newCommand()
	c.ctx = limited{Context: ctx, end: sent.Add(limit)}
	reply, repeated, err := b.conn.send(&c.ctx, b.conn.calls, b.wire.Acquire(&r, b.plain(r.First), &c.Room), sent)
	if err != nil {
		return backend.AcquireReply{Sent: sent, Repeated: repeated}, err
	}
	a, err := decodeAcquire(&r, reply, sent, repeated)
	a.Received = c.ctx.received
	b.conn.reuse(c)
	return a, err
}

// plain reports whether a grant may be a plain hold. No duplicate of the command may exist, because a
// plain hold remembers no ended ids. With ReplicaAcks each grant is a hash, because evalAcked
// recognizes only a grant of that form.
func (b *Backend) plain(first bool) bool { return first && b.conn.own && b.conn.acks.N == 0 }

// decodeAcquire decodes a reply. After a reply of an unknown form the request may still have the key,
// so Repeated is set.
func decodeAcquire(r *backend.AcquireRequest, reply []any, sent time.Time, repeated bool) (backend.AcquireReply, error) {
	a, err := wire.DecodeAcquire(r, reply)
	a.Sent, a.Repeated = sent, repeated || unknownReply(err)
	return a, err
}
