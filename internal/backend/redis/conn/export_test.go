package conn

import (
	"context"

	"github.com/redis/go-redis/v9"
)

func OwnCluster(ctx context.Context, o *redis.ClusterOptions) *redis.ClusterClient {
	return ownCluster(ctx, o, &slotMap{newClient: redis.NewClient}, &dials{to: newEndpoints()}, ErrCutOff)
}

func EndWith(ctx context.Context, next dialer, over error) dialer {
	return endWith(ctx, next, &dials{to: newEndpoints(), patience: patience}, over)
}
