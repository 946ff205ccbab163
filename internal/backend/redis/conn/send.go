package conn

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// ReloadSlots reloads the slots of a cluster if a server did not reply, because another server may
// have replaced it. Without this, go-redis reloads them once a minute, and when a server redirects
// a command.
func ReloadSlots(ctx context.Context, rdb redis.UniversalClient, err error) {
	if err == nil || errors.As(err, new(redis.Error)) || errors.As(err, new(*NotSentError)) || errors.Is(err, context.Canceled) {
		return
	}
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx) // asynchronous, at most five times a second
	}
}

// Send sends a script by its digest. If the server does not have the script, Send sends it in full.
func Send(l *Limited, on redis.UniversalClient, c wire.Command) (any, error) {
	ctx := l.Own()
	if _, ok := on.(*redis.ClusterClient); ok {
		defer func() { l.Sends.Lost = l.Sends.Lost || ctx.Sends.Lost || !ctx.Sends.Seen }() // a hook of the user may replace ctx
	}
	c.Use(c.SHA)
	cmd := redis.NewCmd(ctx, c.List...)
	err := on.Process(ctx, cmd)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		c.List = slices.Clone(c.List)
		c.Use(c.Full)
		cmd = redis.NewCmd(ctx, c.List...)
		err = on.Process(ctx, cmd)
	}
	if err != nil {
		return nil, err
	}
	return cmd.Val(), nil
}
