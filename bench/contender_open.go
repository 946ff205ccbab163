package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/holdfast-go/holdfast/lockcore"
)

func usedAs(text, call string) string { return fmt.Sprintf(text, call) }

var errNotExtended = errors.New("bench: not extended")

func openRedsyncAs(u usage) func(*link, string, time.Duration) (contend, error) {
	return func(l *link, addr string, lease time.Duration) (contend, error) {
		rs := redsync.New(goredis.NewPool(u.client(l, addr)))
		return func(ctx context.Context, key string) (context.Context, func() error, error) {
			m := rs.NewMutex(key, redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt))
			if err := m.LockContext(ctx); err != nil {
				return nil, nil, err
			}
			work, stop := u.watch(lease, func(ctx context.Context) error {
				if ok, err := m.ExtendContext(ctx); err != nil || !ok {
					return errors.Join(errNotExtended, err)
				}
				return nil
			})
			return work, u.release(stop, lease, func(ctx context.Context) error {
				_, err := m.UnlockContext(ctx)
				return err
			}), nil
		}, nil
	}
}

// obtainTime is longer than any run. Without a deadline of the ctx, Obtain would stop waiting after
// one lease.
const obtainTime = time.Minute

func openRedislockAs(u usage) func(*link, string, time.Duration) (contend, error) {
	return func(l *link, addr string, lease time.Duration) (contend, error) {
		client := redislock.New(u.client(l, addr))
		options := &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)}
		return func(ctx context.Context, key string) (context.Context, func() error, error) {
			ctx, cancel := context.WithTimeout(ctx, obtainTime)
			defer cancel()
			lock, err := client.Obtain(ctx, key, lease, options)
			if err != nil {
				return nil, nil, err
			}
			work, stop := u.watch(lease, func(ctx context.Context) error { return lock.Refresh(ctx, lease, nil) })
			return work, u.release(stop, lease, lock.Release), nil
		}, nil
	}
}

func openRueidislockUnder(l *link, addr string, lease time.Duration) (contend, error) {
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress: []string{addr},
			DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return l.dial(ctx, "tcp", addr)
			},
		},
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    lease,
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (context.Context, func() error, error) {
		work, cancel, err := locks.WithContext(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		return work, func() error { // it does not report the result
			cancel()
			return nil
		}, nil
	}, nil
}

func openHoldfastUnder(l *link, addr string, lease time.Duration) (contend, error) {
	locks, err := lockcore.New(usage{}.client(l, addr), lockcore.Options{})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (context.Context, func() error, error) {
		le, err := locks.Acquire(ctx, key, lockcore.Terms{Wait: lockcore.Forever, Lease: lease})
		if err != nil {
			return nil, nil, err
		}
		return le.Context(), func() error { return le.Release(context.Background()) }, nil
	}, nil
}
