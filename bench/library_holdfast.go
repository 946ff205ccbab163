package main

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

type holdfastLocker struct {
	locks *lockcore.Locker
	terms lockcore.Terms
	limit lockcore.Limit // zero: the key alone
}

func openHoldfast(s setup) (locker, error) {
	locks, err := openLocks(s)
	if err != nil {
		return nil, err
	}
	if s.rate.N > 0 {
		return throttled{locks, s.rate}, nil
	}
	return &holdfastLocker{locks, lockcore.Terms{Wait: lockcore.Forever, Lease: s.lease}, lockcore.Limit{N: s.limit}}, nil
}

func openLocks(s setup) (*lockcore.Locker, error) {
	if len(s.masters) == 0 {
		return lockcore.New(newClient(s), lockcore.Options{})
	}
	var masters []*redis.Client
	for _, addr := range s.masters {
		masters = append(masters, newSingle(s, addr))
	}
	return lockcore.NewQuorum(masters, lockcore.Options{Terms: lockcore.Terms{Lease: s.lease}})
}

func (l *holdfastLocker) lock(ctx context.Context, key string) (held, error) {
	acquire := func() (*lockcore.Lease, error) { return l.locks.Acquire(ctx, key, l.terms) }
	if l.limit.N != 0 {
		acquire = func() (*lockcore.Lease, error) { return l.locks.AcquireShare(ctx, key, l.limit, l.terms) }
	}
	lease, err := acquire()
	if err != nil {
		return nil, err
	}
	return holdfastHeld{lease}, nil
}

type holdfastHeld struct{ lease *lockcore.Lease }

func (h holdfastHeld) unlock(ctx context.Context) error { return h.lease.Release(ctx) }
func (h holdfastHeld) work() context.Context            { return h.lease.Context() }
