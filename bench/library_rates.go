package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/holdfast-go/holdfast/lockcore"
)

// throttled is holdfast's Throttle as a locker: it holds nothing.
type throttled struct {
	locks *lockcore.Locker
	rate  lockcore.Rate
}

func (t throttled) lock(ctx context.Context, key string) (held, error) {
	_, err := t.locks.Throttle(ctx, key, t.rate, lockcore.ThrottleOptions{Wait: lockcore.Forever})
	return begun{}, err
}

// begun is what a call with a rate holds.
type begun struct{}

func (begun) unlock(context.Context) error { return nil }

// redisRate waits for the rate in a loop of Allow: after a refusal it sleeps for RetryAfter.
type redisRate struct {
	limiter *redis_rate.Limiter
	limit   redis_rate.Limit
}

func openRedisRate(s setup) (locker, error) {
	return redisRate{redis_rate.NewLimiter(newClient(s)), redis_rate.Limit{Rate: s.rate.N, Period: s.rate.Per, Burst: s.rate.Burst}}, nil
}

func (l redisRate) lock(ctx context.Context, key string) (held, error) {
	for {
		r, err := l.limiter.Allow(ctx, key, l.limit)
		if err != nil || r.Allowed > 0 {
			return begun{}, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(r.RetryAfter):
		}
	}
}
