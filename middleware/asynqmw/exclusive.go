package asynqmw

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ExclusiveOptions of [Exclusive]. The zero value waits 2 s for the key and then comes back later.
type ExclusiveOptions struct {
	// Terms of the key. Name is the class of the key unless it is set here. Wait is cut short before the task's deadline,
	// see [ConflictPolicy].
	Terms lockcore.Terms
	// Busy says what becomes of a task whose key is busy when the wait is over. Default: RetryLater.
	Busy ConflictPolicy
	// Adopt makes a task whose header [HeaderTicket] has a ticket adopt the hold of that ticket,
	// instead of waiting for it. The ticket must be for the key of the task, else the task fails with
	// lockcore.ErrTicket. If the ticket is worthless, because it was used or is late, the task acquires
	// the key like any other.
	Adopt bool
}

// Validate reports every problem of o at once.
func (o ExclusiveOptions) Validate() error {
	return errtext.Join(o.Terms.Validate(), o.Busy.validate("ExclusiveOptions.Busy"))
}

// Exclusive returns a middleware under which no two tasks of the same key run at the same time, anywhere on the same
// Redis and prefix. Tasks of different types meet if their keys are equal.
//
// The handler runs under a ctx that is canceled before the lease can end, at the task's deadline
// and when asynq cancels the task. The key is given back when the handler has returned, also if it
// panics, and not before: a handler that ignores its deadline keeps its retry out. asynq gets what
// the handler returns. If that is context.Canceled or context.DeadlineExceeded and the lease had
// ended before, the error also has why the lease ended. If the handler was not run, asynq gets what
// ExclusiveOptions.Busy says, or an error that satisfies errors.Is(err, lockcore.ErrNotRun): Redis
// is unavailable, the Locker is closed, or the task has no key.
//
// Exclusive panics if locks or key is nil, or if o is not valid.
func Exclusive(locks *lockcore.Locker, key KeyFunc, o ExclusiveOptions) asynq.MiddlewareFunc {
	d := newDecorator("Exclusive", locks, key, o.Validate(), o.Terms, o.Busy)
	d.adopt = o.Adopt
	return d.middleware(d.exclusive)
}

func (d *decorator) exclusive(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
	ctx, key, terms, err := d.begin(ctx, t, nil)
	switch {
	case errors.Is(err, guard.Unguarded):
		return next.ProcessTask(ctx, t)
	case err != nil:
		return err
	}
	ctx, err = d.adopting(ctx, t, lockcore.KindExclusive, key.String())
	if err != nil {
		return err
	}
	var answer error
	v := d.parkable(ctx, backend.KindExclusive, key.String(), terms)
	ran, at, err := v.run(ctx, terms, func(terms lockcore.Terms) (ran bool, err error) {
		err = guard.Exclusive(ctx, d.locks, key.String(), terms, func(ctx context.Context) error {
			ran = true
			defer v.begin(ctx)()
			answer = next.ProcessTask(ctx, t)
			return answer
		})
		return ran, err
	})
	if ran {
		return answered(answer, err)
	}
	return d.refused(ctx, terms.Name, at, err)
}
