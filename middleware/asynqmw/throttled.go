package asynqmw

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ThrottleOptions are the options of [Throttled] and [ThrottledFunc]. With the zero value a task
// waits 2 s for its turn (or the Locker's Terms.Wait), and then comes back later.
type ThrottleOptions struct {
	lockcore.ThrottleOptions

	// Busy decides what happens to a task whose turn is after the end of the wait. Default:
	// RetryLater.
	Busy ConflictPolicy
}

// Validate reports every problem of o at once.
func (o ThrottleOptions) Validate() error {
	return errtext.Join(o.ThrottleOptions.Validate(), o.Busy.validate("ThrottleOptions.Busy"))
}

// Throttled returns a middleware under which the tasks of a key begin at the rate r, in all processes
// with the same Redis and prefix. This calls a partner at most 20 times in any second:
//
//	asynqmw.Throttled(locks, asynqmw.ByType(), lockcore.Rate{N: 19, Burst: 2}, asynqmw.ThrottleOptions{})
//
// The handler gets the ctx of the task, and nothing is held while it runs: to bound how many tasks run
// at the same time too, use [Limited] with Limit.Rate. A retry takes the cost again. [lockcore.Rate]
// has the rules of rates.
//
// A task whose turn is after the wait comes back later and uses up no retry, as o.Busy decides.
// With [Parking] it is parked: it occupies no worker, keeps its place, and comes back when it is
// due. Other errors are those of [Exclusive], and use up a retry. Throttled panics if locks or key
// is nil, or if r or o is not valid.
func Throttled(locks *lockcore.Locker, key KeyFunc, r lockcore.Rate, o ThrottleOptions) asynq.MiddlewareFunc {
	invalid := errtext.Join(checkRate("rate", r), o.Validate())
	d := newDecorator("Throttled", locks, "key", key.keys(), invalid, o.terms(), o.Busy)
	d.limit = always(lockcore.Limit{Rate: r})
	return d.middleware(d.exclusive)
}

// RateFunc returns the rate of a task, for example its tenant's, or its Cost. It is called once per
// delivery, from several goroutines. If it returns an error or a rate that is not valid, the task
// does not run, asynq gets an error and retries, and the Observer gets event.NoKey.
type RateFunc func(ctx context.Context, t *asynq.Task) (lockcore.Rate, error)

// ThrottledFunc is [Throttled] with a rate that depends on the task. It panics if locks, key or rate
// is nil, or if o is not valid.
func ThrottledFunc(locks *lockcore.Locker, key KeyFunc, rate RateFunc, o ThrottleOptions) asynq.MiddlewareFunc {
	invalid := o.Validate()
	if rate == nil {
		invalid = errtext.Join(errors.New("asynqmw: rate must not be nil"), invalid)
	}
	d := newDecorator("ThrottledFunc", locks, "key", key.keys(), invalid, o.terms(), o.Busy)
	d.limit = func(ctx context.Context, t *asynq.Task) (lockcore.Limit, error) {
		r, err := rate(ctx, t)
		if err == nil {
			err = checkRate("the rate of RateFunc", r)
		}
		return lockcore.Limit{Rate: r}, err
	}
	return d.middleware(d.exclusive)
}

func (o ThrottleOptions) terms() lockcore.Terms {
	return lockcore.Terms{Name: o.Name, Wait: o.Wait, MaxWaiting: o.MaxWaiting}
}

// checkRate returns an error that says what is not valid.
func checkRate(what string, r lockcore.Rate) error {
	if err := r.Validate(); err != nil {
		return errtext.Prefix("asynqmw: "+what, err)
	}
	return nil
}
