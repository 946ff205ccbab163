package redis

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Inspect sends inspect.lua.
func (b *Backend) Inspect(ctx context.Context, key *backend.Key, part backend.RecordPart) (backend.Status, error) {
	reply, _, err := b.send.insist(ctx, b.send.Calls, b.wire.Inspect(key, part))
	if err != nil {
		return backend.Status{}, err
	}
	return wire.DecodeInspect(key.Kind, reply)
}

// Revoke sends revoke.lua, once for each step.
func (b *Backend) Revoke(ctx context.Context, r backend.RevokeRequest) (revoked bool, err error) {
	id, step := rand.Text(), wire.RevokeStep{}
	for more := true; more; {
		reply, _, err := b.send.insist(ctx, b.send.Ends, b.wire.Revoke(&r, id, step))
		if err != nil {
			return false, err
		}
		revoked, step, more = wire.DecodeRevoke(reply)
	}
	return revoked, nil
}

// Pause sends pause.lua.
func (b *Backend) Pause(ctx context.Context, key *backend.Key, d time.Duration, reason string) error {
	_, _, err := b.send.insist(ctx, b.send.Ends, b.wire.Pause(key, d, reason, rand.Text()))
	return err
}

// Restrict sends restrict.lua.
func (b *Backend) Restrict(ctx context.Context, key *backend.Key, r backend.Restriction) error {
	_, _, err := b.send.insist(ctx, b.send.Ends, b.wire.Restrict(key, r, rand.Text()))
	return err
}

// Clear sends clear.lua.
func (b *Backend) Clear(ctx context.Context, r backend.ClearRequest) (backend.ClearReply, error) {
	reply, _, err := b.send.insist(ctx, b.send.Ends, b.wire.Clear(&r, rand.Text()))
	if err != nil {
		return 0, err
	}
	return wire.DecodeClear(reply)
}

// ForceClear sends force_clear.lua.
func (b *Backend) ForceClear(ctx context.Context, r backend.ForceClearRequest) (backend.ForceClearReply, error) {
	reply, _, err := b.send.insist(ctx, b.send.Ends, b.wire.ForceClear(&r, rand.Text()))
	if err != nil {
		return backend.ForceClearReply{}, err
	}
	return wire.DecodeForceClear(reply)
}
