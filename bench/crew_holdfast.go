package main

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// reentries is how many make one turn: reading the clock takes about as long as one of them.
const reentries = 1000

func newReentryCrew(j job, l *holdfastLocker, seen *witness) (*crew, error) {
	key := j.Prefix + "reentry"
	outer, err := l.locks.Acquire(context.Background(), key, l.terms)
	if err != nil {
		return nil, err
	}
	return newCrew(1, seen, func(_ context.Context, w *worker) error {
		for range reentries {
			lease, err := l.locks.Acquire(outer.Context(), key, l.terms)
			if err != nil {
				return err
			}
			if err := lease.Release(outer.Context()); err != nil {
				return err
			}
		}
		w.granted(reentries)
		return nil
	}), nil
}

func newOnceCrew(j job, l *holdfastLocker, seen *witness) *crew {
	options := guard.OnceOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}}
	n := 0
	return newCrew(1, seen, func(ctx context.Context, w *worker) error {
		key := j.Prefix + "once"
		if !j.Point.Replay {
			n++
			key = fmt.Sprintf("%s%d", key, n)
		}
		_, err := guard.Once(ctx, l.locks, key, options, func(context.Context) error {
			w.inside(0, 0)
			return nil
		})
		if err == nil {
			w.granted(1)
		}
		return err
	})
}
