package redis

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Acquire sends acquire.lua, acquire_share.lua for a share, or throttle.lua.
func (b *Backend) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	limit, start := min(r.Timeout, backend.CallTimeout), time.Now()
	sent := start
	if b.cleanups.Blocks(r.First) {
		if err := b.cleanups.Before(ctx, r.Key.Stored[0], r.First, limit); err != nil {
			return backend.AcquireReply{Sent: sent}, err
		}
		sent = time.Now()
		limit = min(r.Timeout-sent.Sub(start), backend.CallTimeout) // r.Timeout includes the wait for withdrawals
	}
	if !r.Share.Alone() {
		cmd := b.wire.AcquireShare
		if r.Share.Throttled() {
			cmd = b.wire.Throttle
		}
		reply, repeated, err := b.send.once(&conn.Limited{Context: ctx, End: sent.Add(limit)}, b.send.Calls, cmd(&r), sent)
		if err != nil {
			return backend.AcquireReply{Sent: sent, Repeated: repeated}, err
		}
		return decodeAcquire(&r, reply, sent, repeated)
	}
	c := newCommand()
	c.ctx = conn.Limited{Context: ctx, End: sent.Add(limit)}
	reply, repeated, err := b.send.once(&c.ctx, b.send.Calls, b.wire.Acquire(&r, b.plain(r.First), &c.Room), sent)
	if err != nil {
		return backend.AcquireReply{Sent: sent, Repeated: repeated}, err
	}
	a, err := decodeAcquire(&r, reply, sent, repeated)
	a.Received = c.ctx.Received
	b.send.reuse(c)
	return a, err
}

// Spend sends throttle.lua.
func (b *Backend) Spend(ctx context.Context, key *backend.Key, rate backend.Rate) error {
	reply, _, err := b.send.insist(ctx, b.send.Calls, b.wire.Spend(key, rate))
	if err == nil {
		_, err = wire.DecodeAcquire(&backend.AcquireRequest{Share: backend.Share{Rate: rate}}, reply)
	}
	return err
}

// plain reports whether a grant may be a plain hold. No duplicate of the command may exist, because a
// plain hold remembers no ended ids. With ReplicaAcks each grant is a hash, because evalAcked
// recognizes only a grant of that form.
func (b *Backend) plain(first bool) bool { return first && b.send.Own && b.send.acks.N == 0 }

// decodeAcquire decodes a reply. After a reply of an unknown form the request may still have the key,
// so Repeated is set.
func decodeAcquire(r *backend.AcquireRequest, reply []any, sent time.Time, repeated bool) (backend.AcquireReply, error) {
	a, err := wire.DecodeAcquire(r, reply)
	a.Sent, a.Repeated = sent, repeated || conn.UnknownReply(err)
	return a, err
}
