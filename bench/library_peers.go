package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"math"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type redsyncLocker struct {
	rs    *redsync.Redsync
	lease time.Duration
}

func openRedsync(s setup) (locker, error) {
	return redsyncLocker{redsync.New(goredis.NewPool(newClient(s))), cmp.Or(s.lease, 8*time.Second)}, nil
}

func (l redsyncLocker) lock(ctx context.Context, key string) (held, error) {
	m := l.rs.NewMutex(key, redsync.WithTries(math.MaxInt), redsync.WithExpiry(l.lease))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{m}, nil
}

type redsyncHeld struct{ m *redsync.Mutex }

func (h redsyncHeld) unlock(ctx context.Context) error {
	_, err := h.m.UnlockContext(ctx)
	return err
}

type redislockLocker struct {
	client  *redislock.Client
	lease   time.Duration
	options *redislock.Options
}

func openRedislock(s setup) (locker, error) {
	return newRedislock(s, 10*time.Millisecond), nil
}

func openPatientRedislock(s setup) (locker, error) {
	return newRedislock(s, 100*time.Millisecond), nil
}

func newRedislock(s setup, backoff time.Duration) redislockLocker {
	return redislockLocker{
		client:  redislock.New(newClient(s)),
		lease:   cmp.Or(s.lease, 30*time.Second),
		options: &redislock.Options{RetryStrategy: redislock.LinearBackoff(backoff)}, // without state: it can be shared
	}
}

func (l redislockLocker) lock(ctx context.Context, key string) (held, error) {
	lock, err := l.client.Obtain(ctx, key, l.lease, l.options)
	if err != nil {
		return nil, err
	}
	return redislockHeld{lock}, nil
}

type redislockHeld struct{ lock *redislock.Lock }

func (h redislockHeld) unlock(ctx context.Context) error { return h.lock.Release(ctx) }

type rueidislockLocker struct{ locks rueidislock.Locker }

func openRueidislock(s setup) (locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: s.addrs(),
			DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return s.wire.Dial(ctx, "tcp", addr)
			},
		},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    s.lease, // 0: its default, 5 s
	})
	if err != nil {
		return nil, err
	}
	return rueidislockLocker{locks}, nil
}

func (l rueidislockLocker) lock(ctx context.Context, key string) (held, error) {
	_, cancel, err := l.locks.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return rueidislockHeld(cancel), nil
}

type rueidislockHeld context.CancelFunc

func (h rueidislockHeld) unlock(context.Context) error {
	h()
	return nil
}
