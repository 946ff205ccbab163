package chaos_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	minLimit = 3
	limits   = 3 // the limit is minLimit to minLimit+limits-1, and changes
	changes  = 2 * time.Second
)

// shareKeys are the keys of load.Shares. All have exclusive calls too.
var shareKeys = []string{"permits", "readers", "mixed"}

// share makes a shared, limited or exclusive call.
func (w *worker) share(ctx context.Context) {
	key, terms, stay := shareKeys[rand.IntN(len(shareKeys))], lockcore.Terms{Wait: lockcore.Forever}, rand.N(2*time.Millisecond)
	switch n := rand.IntN(2000); {
	case n == 0:
		stay = w.Lease/2 + rand.N(w.Lease)
	case n < 20:
		stay = rand.N(100 * time.Millisecond)
	}
	switch rand.IntN(20) {
	case 0:
		terms.Wait = lockcore.NoWait
	case 1, 2:
		var cancel context.CancelFunc
		ctx, cancel = sometimesCanceled(ctx)
		defer cancel()
	}
	c, weight := newCall(), 1
	turn := func(limit int) func(context.Context) error {
		return func(ctx context.Context) error {
			defer c.enter()()
			w.hold(ctx, c, line{Key: key, Limit: limit, Weight: weight}, stay)
			return nil
		}
	}
	var err error
	switch n := rand.IntN(20); {
	case n == 0:
		err = guard.Exclusive(ctx, w.locks, key, terms, turn(0))
	case key == "readers" || key == "mixed" && n < 10:
		err = guard.Shared(ctx, w.locks, key, terms, turn(lockcore.Unlimited))
	default:
		limit := minLimit + int(c.began.UnixNano()/int64(changes))%limits
		if n == 1 { // one that does not know of the change yet
			limit = minLimit + rand.IntN(limits)
		}
		weight = 1 + rand.IntN(minLimit)
		err = guard.Limited(ctx, w.locks, key, lockcore.Limit{N: limit, Weight: weight}, terms, turn(limit))
	}
	c.end(ctx, w, terms, err)
}

// keepPermits holds all permits of the key that has the worker's name, so that the test can wait
// for them when it kills the worker. It acquires them again after a loss.
func (w *worker) keepPermits(wg *sync.WaitGroup) {
	for weight := 1; weight < minLimit; weight++ {
		wg.Go(func() {
			for w.over.Err() == nil {
				c, terms := newCall(), lockcore.Terms{Wait: lockcore.Forever}
				err := guard.Limited(w.over, w.locks, w.Name, lockcore.Limit{N: minLimit, Weight: weight}, terms, func(ctx context.Context) error {
					defer c.enter()()
					<-ctx.Done()
					return nil
				})
				if w.over.Err() == nil {
					c.end(w.over, w, terms, err)
				}
			}
		})
	}
}
