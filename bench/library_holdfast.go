package main

import (
	"context"

	"github.com/holdfast-go/holdfast/lockcore"
)

type holdfastLocker struct {
	locks *lockcore.Locker
	terms lockcore.Terms
}

func openHoldfast(s setup) (locker, error) {
	locks, err := lockcore.New(newClient(s), lockcore.Options{})
	if err != nil {
		return nil, err
	}
	return &holdfastLocker{locks, lockcore.Terms{Wait: lockcore.Forever, Lease: s.lease, Limit: s.limit}}, nil
}

func (l *holdfastLocker) lock(ctx context.Context, key string) (held, error) {
	lease, err := l.locks.Acquire(ctx, key, l.terms)
	if err != nil {
		return nil, err
	}
	return holdfastHeld{lease}, nil
}

type holdfastHeld struct{ lease *lockcore.Lease }

func (h holdfastHeld) unlock(ctx context.Context) error { return h.lease.Release(ctx) }
func (h holdfastHeld) work() context.Context            { return h.lease.Context() }
