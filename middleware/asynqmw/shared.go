package asynqmw

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ShareOptions are the options of [Shared], [Limited] and [LimitedFunc]. With the zero value a task
// waits 2 s for its key (or the Locker's Terms.Wait), and then comes back later.
type ShareOptions struct {
	// Terms of the key. Default of Name: the class of the key. Wait ends before the task's
	// deadline, see [ConflictPolicy].
	Terms lockcore.Terms
	// Busy decides what happens to a task for which there is still no room at the end of the wait.
	// Default: RetryLater.
	Busy ConflictPolicy
}

// Validate reports every problem of o at once.
func (o ShareOptions) Validate() error {
	return errtext.Join(o.Terms.Validate(), o.Busy.validate("ShareOptions.Busy"))
}

// Shared returns a middleware for readers. Any number of tasks of the same key run at the same
// time, but never together with a task of [Exclusive] with that key. A reader does not overtake a
// task that waits for the key in its worker, see [guard.Shared]. It may overtake a parked task of
// Exclusive.
//
// A task whose key is busy is treated as under Exclusive, and so are errors. Shared panics if locks
// or key is nil, or if o is not valid.
func Shared(locks *lockcore.Locker, key KeyFunc, o ShareOptions) asynq.MiddlewareFunc {
	d := newDecorator("Shared", locks, "key", key.keys(), o.Validate(), o.Terms, o.Busy)
	d.limit = always(lockcore.Limit{N: lockcore.Unlimited})
	return d.middleware(d.exclusive)
}

// Limited returns a middleware under which at most limit.N tasks of the same key run at the same
// time, in all processes with the same Redis and prefix. This runs at most 3 tasks of a type at a
// time:
//
//	asynqmw.Limited(locks, asynqmw.ByType(), lockcore.Limit{N: 3}, asynqmw.ShareOptions{})
//
// With limit.Rate tasks also begin at that rate, see [Throttled]. A task of [Exclusive] with the
// same key waits until all others have ended, and keeps new ones out. Each task is granted under the
// limit of its own middleware, so all middlewares of a key should have the same N. A change of N
// needs no migration.
//
// A task for which there is no room is treated as a task of Exclusive whose key is busy, and so are
// errors. With [Parking] it is parked, and is woken when there is room. Limited panics if locks or
// key is nil, or if limit or o is not valid.
func Limited(locks *lockcore.Locker, key KeyFunc, limit lockcore.Limit, o ShareOptions) asynq.MiddlewareFunc {
	invalid := errtext.Join(checkLimit("limit", limit), o.Validate())
	d := newDecorator("Limited", locks, "key", key.keys(), invalid, o.Terms, o.Busy)
	d.limit = always(limit)
	return d.middleware(d.exclusive)
}

// LimitFunc returns the limit of a task, for example its tenant's. All tasks of a key should have
// the same N. It is called once per delivery, from several goroutines. If it returns an error or a
// limit that is not valid, the task does not run, asynq gets an error and retries, and the Observer
// gets event.NoKey.
type LimitFunc func(ctx context.Context, t *asynq.Task) (lockcore.Limit, error)

// of returns the limit of t.
func (f LimitFunc) of(ctx context.Context, t *asynq.Task) (lockcore.Limit, error) {
	n, err := f(ctx, t)
	if err != nil {
		return lockcore.Limit{}, err
	}
	return n, checkLimit("the limit of LimitFunc", n)
}

func always(n lockcore.Limit) LimitFunc {
	return func(context.Context, *asynq.Task) (lockcore.Limit, error) { return n, nil }
}

// checkLimit returns an error that says what is not valid.
func checkLimit(what string, n lockcore.Limit) error {
	if err := n.Validate(); err != nil {
		return errtext.Prefix("asynqmw: "+what, err)
	}
	return nil
}

// LimitedFunc is [Limited] with a limit that depends on the task. It panics if locks, key or limit
// is nil, or if o is not valid.
func LimitedFunc(locks *lockcore.Locker, key KeyFunc, limit LimitFunc, o ShareOptions) asynq.MiddlewareFunc {
	invalid := o.Validate()
	if limit == nil {
		invalid = errtext.Join(errors.New("asynqmw: limit must not be nil"), invalid)
	}
	d := newDecorator("LimitedFunc", locks, "key", key.keys(), invalid, o.Terms, o.Busy)
	d.limit = limit.of
	return d.middleware(d.exclusive)
}
