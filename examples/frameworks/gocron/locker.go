// Package gocron makes a Locker of holdfast the distributed locker of gocron.
package gocron

import (
	"context"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Locker runs each tick of a job on one scheduler: gocron.WithDistributedLocker(Locker(locks,
// splay)). splay is longer than the time between the schedulers' runs of one tick, and shorter than
// half of the interval.
func Locker(locks *lockcore.Locker, splay time.Duration) gocron.Locker {
	return locker{locks, lockcore.Terms{Name: "gocron", Wait: lockcore.NoWait, MinHold: splay}}
}

type locker struct {
	locks *lockcore.Locker
	terms lockcore.Terms
}

func (l locker) Lock(ctx context.Context, job string) (gocron.Lock, error) {
	lease, err := l.locks.Acquire(ctx, "gocron:"+job, l.terms)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

type lock struct{ lease *lockcore.Lease }

func (l lock) Unlock(ctx context.Context) error { return l.lease.Release(context.WithoutCancel(ctx)) }
