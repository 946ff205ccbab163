package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// crowd has the numbers of buyers and clicks. Each user clicks a few times at nearly the same
// moment.
type crowd struct{ users, clicks, atOnce int }

// result has the counts of one run of a strategy.
type result struct {
	sold, oversold, two, left int   // two: users with two orders
	charged, twice            int   // users that were charged, and those that were charged twice
	stale                     int   // writes that the fence refused
	retries                   int64 // transactions that began again after a conflict
	failed                    int   // clicks that ended with an error other than errSoldOut
	firstErr                  error
	rate                      float64 // clicks a second
	p50, p99                  time.Duration
}

// order returns the users in the order of their clicks. Those of one user are near each other.
func (c crowd) order() []int {
	order := make([]int, 0, c.users*c.clicks)
	for user := range c.users {
		for range c.clicks {
			order = append(order, user)
		}
	}
	for i := range order {
		j := min(len(order)-1, i+rand.IntN(8))
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// click calls buy for each click, until ctx ends. It returns the user of each click for which buy
// returned no error.
func (c crowd) click(ctx context.Context, buy func(ctx context.Context, user int) error) (buyers []int, r result) {
	var mu sync.Mutex
	var took []time.Duration
	one := func(user int) {
		ctx, cancel := context.WithTimeout(ctx, clickTimeout)
		defer cancel()
		began := time.Now()
		err := buy(ctx, user)
		mu.Lock()
		defer mu.Unlock()
		took = append(took, time.Since(began))
		switch {
		case err == nil:
			buyers = append(buyers, user)
		case !errors.Is(err, errSoldOut):
			if r.failed++; r.failed == 1 {
				r.firstErr = err
			}
		}
	}
	began := time.Now()
	each(ctx, c.atOnce, c.order(), one)
	r.rate = float64(len(took)) / time.Since(began).Seconds()
	if len(took) == 0 { // ctx has ended
		return nil, r
	}
	slices.Sort(took)
	r.p50, r.p99 = took[len(took)/2], took[len(took)*99/100]
	return buyers, r
}

// each calls f for each user, atOnce of them at the same time, until ctx ends.
func each(ctx context.Context, atOnce int, users []int, f func(user int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range atOnce {
		all.Go(func() {
			for user := range next {
				f(user)
			}
		})
	}
	for _, user := range users {
		if ctx.Err() != nil {
			break
		}
		next <- user
	}
	close(next)
	all.Wait()
}
