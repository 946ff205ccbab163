package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
)

// floorLease is the lease of a lock of the floor, which has no watchdog.
const floorLease = 30 * time.Second

var compareAndDelete = redis.NewScript(`if redis.call("get", KEYS[1]) == ARGV[1] then return redis.call("del", KEYS[1]) end return 0`)

// newClient returns the go-redis client of a library, with its defaults.
func newClient(s setup) redis.UniversalClient {
	if len(s.cluster) > 0 {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.cluster, Dialer: s.dial})
	}
	return newSingle(s, s.addr)
}

func newSingle(s setup, addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, Dialer: s.dial, ContextTimeoutEnabled: s.timeouts})
}

// floor is the minimal lock on Redis, as in most programs that do not use a library.
type floor struct {
	rdb   redis.Cmdable
	lease time.Duration
}

func openFloor(s setup) (locker, error) { return newFloor(s, newClient(s)), nil }

func newFloor(s setup, rdb redis.Cmdable) floor { return floor{rdb, cmp.Or(s.lease, floorLease)} }

func openPipelinedFloor(s setup) (locker, error) {
	rdb, ok := newClient(s).(interface {
		AutoPipeline() (*redis.AutoPipeliner, error)
	})
	if !ok {
		return nil, errors.New("bench: the client has no AutoPipeline")
	}
	ap, err := rdb.AutoPipeline()
	if err != nil {
		return nil, err
	}
	return newFloor(s, ap), nil
}

func (f floor) lock(ctx context.Context, key string) (held, error) {
	h := &floorHeld{rdb: f.rdb, key: key, value: rand.Text()}
	for {
		if ok, err := f.rdb.SetNX(ctx, key, h.value, f.lease).Result(); err != nil {
			return nil, err
		} else if ok {
			return h, nil
		}
		select {
		case <-time.After(time.Millisecond + mrand.N(8*time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

type floorHeld struct {
	rdb        redis.Cmdable
	key, value string
}

func (h *floorHeld) unlock(ctx context.Context) error {
	return compareAndDelete.Run(ctx, h.rdb, []string{h.key}, h.value).Err()
}
