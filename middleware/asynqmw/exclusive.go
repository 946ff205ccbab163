package asynqmw

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ExclusiveOptions are the options of [Exclusive] and [ExclusiveAll]. With the zero value a task
// waits 2 s for its key (or the Locker's Terms.Wait), and then comes back later.
type ExclusiveOptions struct {
	// Terms of the key. Default of Name: the class of the key. Wait ends before the task's
	// deadline, see [ConflictPolicy].
	Terms lockcore.Terms
	// Busy decides what happens to a task whose key is busy at the end of the wait. Default:
	// RetryLater.
	Busy ConflictPolicy
	// Adopt makes a task with a ticket in its header [HeaderTicket] adopt the hold of that ticket,
	// instead of waiting for it. The ticket must be for the key of the task, else the task fails
	// with lockcore.ErrTicket. If the ticket was used or has expired, or its hold was revoked, the
	// task acquires the key like any other. ExclusiveAll panics if it is set. Default: false.
	Adopt bool
}

// Validate reports every problem of o at once.
func (o ExclusiveOptions) Validate() error {
	return errtext.Join(o.Terms.Validate(), o.Busy.validate("ExclusiveOptions.Busy"))
}

// Exclusive returns a middleware under which no two tasks of the same key run at the same time, in
// all processes with the same Redis and prefix. Tasks of different types exclude each other if
// their keys are equal.
//
// The handler's ctx is canceled before the lease can end, at the task's deadline, and when asynq
// cancels the task. The key is released when the handler has returned or panicked, not before. So a
// handler that ignores its deadline keeps its retry out.
//
// asynq gets what the handler returns. If that is context.Canceled or context.DeadlineExceeded, and
// the lease ended before the handler returned, the error also has the reason. If the handler does
// not run, asynq gets one of these:
//
//   - If the key is busy: what ExclusiveOptions.Busy decides.
//   - If Redis is unavailable, the Locker is closed, or the task has no key: an error that
//     satisfies errors.Is(err, lockcore.ErrNotRun).
//
// Exclusive panics if locks or key is nil, or if o is not valid.
func Exclusive(locks *lockcore.Locker, key KeyFunc, o ExclusiveOptions) asynq.MiddlewareFunc {
	d := newDecorator("Exclusive", locks, "key", key.keys(), o.Validate(), o.Terms, o.Busy)
	d.adopt = o.Adopt
	return d.middleware(d.exclusive)
}

// ExclusiveAll is [Exclusive] for tasks that need several keys, such as both accounts of a
// transfer. The handler runs while it holds all keys of the task, see [guard.ExclusiveAll]. The
// keys are acquired in byte order, so two tasks never wait for each other. Terms.Wait bounds the
// time for all of them. A task of ExclusiveAll and a task of Exclusive exclude each other if they
// have a key in common.
//
// The default of Terms.Name is the different classes of the keys, sorted and joined by a plus sign.
// A task whose key is busy is treated as under Exclusive. With [Parking] it is parked on the key
// that is busy, and holds none of its keys. When it is woken and finds another of its keys busy, it
// leaves its place and is parked on that key, at the end.
//
// ExclusiveAll panics if locks or keys is nil, or if o is not valid.
func ExclusiveAll(locks *lockcore.Locker, keys KeysFunc, o ExclusiveOptions) asynq.MiddlewareFunc {
	d := newDecorator("ExclusiveAll", locks, "keys", keys.keys(), errtext.Join(o.Validate(), o.noAdopt("ExclusiveAll: a ticket is for one key")), o.Terms, o.Busy)
	return d.middleware(d.exclusive)
}

// noAdopt returns an error if Adopt is set. why names the middleware that does not allow it, and
// the reason.
func (o ExclusiveOptions) noAdopt(why string) error {
	if o.Adopt {
		return errors.New("asynqmw: ExclusiveOptions.Adopt is true, must be false for " + why)
	}
	return nil
}

func (d *decorator) exclusive(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
	ctx, keys, terms, err := d.begin(ctx, t, nil)
	switch {
	case errors.Is(err, guard.Unguarded):
		return next.ProcessTask(ctx, t)
	case err != nil:
		return err
	}
	keys = different(keys)
	names := keyNames(keys)
	ctx, err = d.adopting(ctx, t, event.KindExclusive, names[0])
	if err != nil {
		return err
	}
	var answer error
	v := d.parkable(ctx, event.KindExclusive, keys, names, terms)
	if v.RanAlready(ctx) {
		return nil
	}
	ran, at, err := v.Run(ctx, terms, func(terms lockcore.Terms) (ran bool, err error) {
		err = d.underGuard(ctx, keys, names, terms, func(ctx context.Context) error {
			ran = true
			defer v.Begin(ctx)()
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

// underGuard runs fn while it holds the keys, or its shares of them, or at the rate of the key.
func (d *decorator) underGuard(ctx context.Context, keys []KeyLimit, names []string, terms lockcore.Terms, fn func(context.Context) error) error {
	switch limit := keys[0].Limit; {
	case d.limited:
		limits := make([]guard.KeyLimit, len(keys))
		for i, k := range keys {
			limits[i] = guard.KeyLimit{Key: names[i], Limit: k.Limit}
		}
		return guard.LimitedAll(ctx, d.locks, limits, terms, fn)
	case limit.N == 0 && limit.Rate.N > 0:
		return guard.Throttled(ctx, d.locks, names[0], limit.Rate, lockcore.ThrottleOptions{Name: terms.Name, Wait: terms.Wait, MaxWaiting: terms.MaxWaiting}, fn)
	case limit.N == lockcore.Unlimited:
		return guard.Shared(ctx, d.locks, names[0], terms, fn)
	case limit.N > 0:
		return guard.Limited(ctx, d.locks, names[0], limit, terms, fn)
	case len(keys) == 1:
		return guard.Exclusive(ctx, d.locks, names[0], terms, fn)
	}
	return guard.ExclusiveAll(ctx, d.locks, names, terms, fn)
}
