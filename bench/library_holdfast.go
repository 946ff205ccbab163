package main

import (
	"context"

	"github.com/holdfast-go/holdfast/lockcore"
)

type holdfastLocker struct {
	locks *lockcore.Locker
	terms lockcore.Terms
	limit lockcore.Limit // zero: the key alone
}

func openHoldfast(s setup) (locker, error) {
	locks, err := lockcore.New(newClient(s), lockcore.Options{})
	if err != nil {
		return nil, err
	}
	return &holdfastLocker{locks, lockcore.Terms{Wait: lockcore.Forever, Lease: s.lease}, lockcore.Limit{N: s.limit}}, nil
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
