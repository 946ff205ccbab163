package redis

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Release sends release.lua. For a request with Next it sends rotate.lua, for a share
// release_share.lua.
func (b *Backend) Release(ctx context.Context, r backend.ReleaseRequest) (backend.ReleaseReply, error) {
	sent := time.Now()
	switch {
	case r.Share.Limit > 0:
		reply, repeated, err := b.conn.send(&limited{Context: ctx, end: sent.Add(callTimeout), detached: true}, b.conn.ends, releaseShareScript, b.releaseShare(&r, sent), sent)
		return decodeEnd(reply, repeated, err)
	case r.Next != nil:
		return b.rotate(ctx, &r, sent)
	}
	c := b.releaseCommand(&r, sent)
	c.ctx = limited{
		Context: ctx, end: sent.Add(callTimeout),
		detached: true, //planted:release-outlives-ctx
	}
	reply, repeated, err := b.conn.send(&c.ctx, b.conn.ends, releaseScript, c.list[:], sent)
	if err == nil {
		defer b.conn.reuse(c)
	}
	return decodeEnd(reply, repeated, err)
}

func (b *Backend) releaseCommand(r *backend.ReleaseRequest, now time.Time) *command {
	c := newCommand()
	c.id, c.token, c.retention = r.ID, r.Token, millis(r.Retention)
	if cooldown := r.CoolUntil.Sub(now); !r.CoolUntil.IsZero() && cooldown > 0 {
		c.cooldown, c.retention = micros(cooldown), millis(cooldown+r.Retention)
	}
	c.list = [15]any{
		2: 2, 3: &r.Key.Stored[0], 4: &r.Key.Stored[1], 5: &c.id, 6: &c.token, 7: flagRef(r.Abandon), 8: &c.retention, 9: flagRef(r.Repeated), 10: &reservation,
		11: &b.channels, 12: flagRef(b.conn.single), 13: &c.cooldown, 14: plainRef(r.Key, r.Plain && !r.Repeated && !r.Abandon && c.cooldown == 0),
	}
	return c
}

// decodeEnd decodes a reply of release.lua, release_share.lua or complete.lua.
func decodeEnd(reply []any, repeated bool, err error) (backend.ReleaseReply, error) {
	r, err := decodeRelease(reply, repeated, err)
	r.Parked = err == nil && isSet(reply, 1)
	return r, err
}

// decodeRelease decodes the first element of a reply of release.lua, release_share.lua,
// complete.lua or rotate.lua. If the reply has another form, the effect of the script is unknown,
// so decodeRelease sets Repeated.
func decodeRelease(reply []any, repeated bool, err error) (backend.ReleaseReply, error) {
	if err != nil {
		return backend.ReleaseReply{Repeated: repeated}, err
	}
	n, err := number(reply, 0)
	if err != nil {
		return backend.ReleaseReply{Repeated: true}, err
	}
	return backend.ReleaseReply{Released: n != 0, Repeated: repeated}, nil
}

func (b *Backend) rotate(ctx context.Context, r *backend.ReleaseRequest, sent time.Time) (backend.ReleaseReply, error) {
	next := r.Next
	reply, repeated, err := b.conn.send(&limited{Context: ctx, end: sent.Add(callTimeout), detached: true}, b.conn.ends, rotateScript,
		listOf(r.Key.Stored[:], r.ID, r.Token, millis(r.Retention), flag(r.Repeated), reservation, b.channels, flag(b.conn.single),
			next.ID, b.o.Locker, micros(next.Lease), flag(next.Queue), next.Holder, millis(next.Retention), queueKeep), sent)
	released, err := decodeRelease(reply, repeated, err)
	released.Next.Sent, released.Next.Repeated = sent, released.Repeated
	if err != nil {
		return released, err
	}
	released.Next, err = decodeAcquire(r.Next, reply[1:], sent, repeated)
	return released, err
}

// Complete sends complete.lua.
func (b *Backend) Complete(ctx context.Context, r backend.CompleteRequest) (backend.ReleaseReply, error) {
	sent := time.Now()
	reply, repeated, err := b.conn.send(&limited{Context: ctx, end: sent.Add(callTimeout)}, b.conn.ends, completeScript,
		listOf(r.Key.Stored[:], r.ID, r.Record, millis(r.Keep), r.Token, b.channels, flag(r.Repeated), flag(r.Plain && !r.Repeated)), sent)
	return decodeEnd(reply, repeated, err)
}
