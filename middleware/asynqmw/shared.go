package asynqmw

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// LimitedOptions are the options of [Limited] and [LimitedFunc]. With the zero value a task waits
// up to 2 s for room, unless the Locker's Terms.Wait is another one, and then comes back later.
type LimitedOptions struct {
	// Terms of the key. Default of Name: the class of the key. Wait ends before the task's
	// deadline, see [ConflictPolicy]. Limit must be 0. Weight is the part of the limit that a task
	// takes. Default: 1.
	Terms lockcore.Terms
	// Busy decides what happens to a task for which there is still no room at the end of the wait.
	// Default: RetryLater.
	Busy ConflictPolicy
}

// Validate reports every problem of o at once. It cannot compare Terms.Weight with a limit that it
// does not know.
func (o LimitedOptions) Validate() error {
	var limit error
	if o.Terms.Limit != 0 {
		limit = fmt.Errorf("asynqmw: LimitedOptions: Terms.Limit is %d, must be 0: the limit is a parameter", o.Terms.Limit)
	}
	return errtext.Join(limit, o.terms(lockcore.MaxLimit).Validate(), o.Busy.validate("LimitedOptions.Busy"))
}

func (o LimitedOptions) terms(limit int) lockcore.Terms {
	o.Terms.Limit = limit
	return o.Terms
}

// Shared returns a middleware for readers. Any number of tasks of the same key run at the same
// time, but never beside a task of [Exclusive] with that key. A reader does not overtake a task
// that waits for the key in its worker, see [guard.Shared]. It may overtake a parked task of
// Exclusive.
//
// A task whose key is busy is treated as under Exclusive, and so are errors. Shared panics if locks
// or key is nil, or if o is not valid or has Adopt.
func Shared(locks *lockcore.Locker, key KeyFunc, o ExclusiveOptions) asynq.MiddlewareFunc {
	terms := o.Terms
	terms.Limit = lockcore.Unlimited
	d := newDecorator("Shared", locks, "key", key.keys(), errtext.Join(o.Validate(), o.noAdopt("Shared: a ticket is for a key alone")), terms, o.Busy)
	return d.middleware(d.exclusive)
}

// Limited returns a middleware under which at most n tasks of the same key run at the same time, in
// all processes with the same Redis and prefix. This runs at most 3 tasks of a type at a time:
//
//	asynqmw.Limited(locks, asynqmw.ByType(), 3, asynqmw.LimitedOptions{})
//
// With Terms.MinHold at most n tasks begin within that time. A task of [Exclusive] with the same
// key waits until all others have ended, and keeps new ones out. Each task is granted under the n
// of its own middleware, so all middlewares of a key should have the same n. A change of n needs no
// migration.
//
// A task for which there is no room is treated as a task of Exclusive whose key is busy, and so are
// errors. With [Parking] it is parked, and is woken when there is room. n is 1 to 1,000,000.
// Limited panics if locks or key is nil, or if n or o is not valid.
func Limited(locks *lockcore.Locker, key KeyFunc, n int, o LimitedOptions) asynq.MiddlewareFunc {
	invalid := o.Validate()
	if invalid == nil {
		invalid = checkLimit("n", n, o.Terms.Weight)
	}
	d := newDecorator("Limited", locks, "key", key.keys(), invalid, o.terms(n), o.Busy)
	return d.middleware(d.exclusive)
}

// LimitFunc returns the limit of a task, for example that of its tenant: 1 to 1,000,000, and at
// least Terms.Weight. All tasks of a key should have the same limit. It is called once per
// delivery, from several goroutines. If it returns an error or another number, the task does not
// run, asynq gets an error and retries, and the Observer gets event.NoKey.
type LimitFunc func(ctx context.Context, t *asynq.Task) (int, error)

// of returns the limit of t.
func (f LimitFunc) of(ctx context.Context, t *asynq.Task, weight int) (int, error) {
	n, err := f(ctx, t)
	if err != nil {
		return 0, err
	}
	return n, checkLimit("the limit of LimitFunc", n, weight)
}

func checkLimit(what string, n, weight int) error {
	switch {
	case n < 1 || n > lockcore.MaxLimit:
		return fmt.Errorf("asynqmw: %s is %d, must be between 1 and %d", what, n, lockcore.MaxLimit)
	case weight > n:
		return fmt.Errorf("asynqmw: Terms.Weight is %d, must be at most %s, which is %d", weight, what, n)
	}
	return nil
}

// LimitedFunc is [Limited] with a limit that depends on the task. It panics if locks, key or limit
// is nil, or if o is not valid.
func LimitedFunc(locks *lockcore.Locker, key KeyFunc, limit LimitFunc, o LimitedOptions) asynq.MiddlewareFunc {
	invalid := o.Validate()
	if limit == nil {
		invalid = errtext.Join(errors.New("asynqmw: limit must not be nil"), invalid)
	}
	d := newDecorator("LimitedFunc", locks, "key", key.keys(), invalid, o.Terms, o.Busy)
	d.limit = limit.of
	return d.middleware(d.exclusive)
}
