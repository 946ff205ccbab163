package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// reentries is the number of nested calls in one turn. One turn has many nested calls, because
// reading the clock takes about as long as one of them.
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

// anyTries is how many keys a worker of newAnyCrew tries before it waits.
const anyTries = 3

// newAnyCrew returns a crew in which each order needs any one of the keys, as in examples/stripes.
// An order tries anyTries keys without a wait, beginning with a random one. If all of them are
// busy, it waits for the first of them.
func newAnyCrew(j job, l *holdfastLocker, seen *witness) *crew {
	p := j.Point
	keys := make([]string, p.Keys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%s%d", j.Prefix, i)
	}
	begun := make([]atomic.Bool, p.Keys) // only the first section of a key is cut short, see worker.inside
	attempt := l.terms
	attempt.Wait = lockcore.NoWait
	return newCrew(p.workersOf(j.Process), seen, func(ctx context.Context, w *worker) error {
		first := rand.N(p.Keys)
		key, err := first, lockcore.ErrBusy
		var lease *lockcore.Lease
		for i := 0; i < anyTries && errors.Is(err, lockcore.ErrBusy); i++ {
			key = (first + i) % p.Keys
			lease, err = l.locks.Acquire(ctx, keys[key], attempt)
		}
		if errors.Is(err, lockcore.ErrBusy) {
			key = first
			lease, err = l.locks.Acquire(ctx, keys[key], l.terms)
		}
		if err != nil {
			return err
		}
		w.granted(1)
		if begun[key].CompareAndSwap(false, true) {
			w.turns = 0
		} else {
			w.turns = max(w.turns, 1)
		}
		w.inside(key, p.Inside)
		return lease.Release(context.Background())
	})
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
