package redis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Own reports whether New made its own clients. Otherwise b uses the client of the user: a failover
// client if Single is true, and a wrapper if not.
func (b *Backend) Own() bool { return b.send.Own }

// Single reports whether the client is for a single server or a failover client.
func (b *Backend) Single() bool { return b.send.Single }

// Prefix returns Options.Prefix, or its default.
func (b *Backend) Prefix() string { return b.prefix }

// Keys returns the prefix of the stored names of all keys.
func (b *Backend) Keys() string { return wire.KeyPrefix(b.prefix) }

// Channels returns the prefix of the channels of notifications.
func (b *Backend) Channels() string { return b.wire.Channels }

// Bounded returns the result of call, or ctx.Err() when ctx ends. A client of the user may ignore
// ctx. Then call continues in a goroutine. If too many of those are running, Bounded returns
// backend.ErrHeldUp.
func (b *Backend) Bounded(ctx context.Context, call func() (any, error)) (any, error) {
	return b.send.Bounded(ctx, call)
}

// Subscriber returns a client like that of Listen, and a function that closes it. If New made the
// clients, dials and connections end with ctx.
func (b *Backend) Subscriber(ctx context.Context) (redis.UniversalClient, func() error) {
	return b.send.Subscriber(ctx)
}
