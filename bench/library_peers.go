package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

type redsyncLocker struct {
	rs       *redsync.Redsync
	lease    time.Duration
	failFast bool
}

func openRedsync(s setup) (locker, error) {
	pools := []redsyncredis.Pool{}
	for _, addr := range s.masters {
		pools = append(pools, goredis.NewPool(newSingle(s, addr)))
	}
	if len(pools) == 0 {
		pools = append(pools, goredis.NewPool(newClient(s)))
	}
	return redsyncLocker{redsync.New(pools...), cmp.Or(s.lease, 8*time.Second), s.failFast}, nil
}

func (l redsyncLocker) lock(ctx context.Context, key string) (held, error) {
	m := l.rs.NewMutex(key, redsync.WithTries(math.MaxInt), redsync.WithExpiry(l.lease), redsync.WithFailFast(l.failFast))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return redsyncHeld{m}, nil
}

type redsyncHeld struct{ m *redsync.Mutex }

var errNotExtended = errors.New("bench: not extended")

func (h redsyncHeld) renew(ctx context.Context, _ time.Duration) error {
	if ok, err := h.m.ExtendContext(ctx); err != nil || !ok {
		return errors.Join(errNotExtended, err)
	}
	return nil
}

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
	return redislockLocker{
		client:  redislock.New(newClient(s)),
		lease:   cmp.Or(s.lease, 30*time.Second),
		options: &redislock.Options{RetryStrategy: redislock.LinearBackoff(cmp.Or(s.pause, 10*time.Millisecond))}, // without state: it can be shared
	}, nil
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

func (h redislockHeld) renew(ctx context.Context, lease time.Duration) error {
	return h.lock.Refresh(ctx, lease, nil)
}

type rueidislockLocker struct{ locks rueidislock.Locker }

func openRueidislock(s setup) (locker, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: s.addrs(),
			DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return s.dial(ctx, "tcp", addr)
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
	work, cancel, err := l.locks.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return &rueidislockHeld{work, cancel}, nil
}

type rueidislockHeld struct {
	ctx    context.Context //nolint:containedctx // of the lock
	cancel context.CancelFunc
}

// unlock returns nil, because rueidislock does not report the result.
func (h *rueidislockHeld) unlock(context.Context) error {
	h.cancel()
	return nil
}

func (h *rueidislockHeld) work() context.Context { return h.ctx }
