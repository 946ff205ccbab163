package redis

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// What tests from outside see of the inside.
var (
	Escape      = escape
	Unescape    = unescape
	ScriptFiles = scriptFiles
)

func OwnCluster(ctx context.Context, o *redis.ClusterOptions) *redis.ClusterClient {
	return ownCluster(ctx, o, &slotMap{newClient: redis.NewClient}, new(heldUpDials), errCutOff)
}

func EndWith(ctx context.Context, next dialer, over error) dialer {
	return endWith(ctx, next, new(heldUpDials), over)
}
