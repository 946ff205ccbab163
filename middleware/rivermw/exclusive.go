package rivermw

import (
	"context"

	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ExclusiveOptions are the options of [Exclusive]. With the zero value a job waits 2 s for its key
// (or the Locker's Terms.Wait), and then comes back later.
type ExclusiveOptions struct {
	// Terms of the key. Default of Name: the class of the key. Wait is bounded, see
	// [ConflictPolicy].
	Terms lockcore.Terms
	// Busy decides what happens to a job whose key is busy at the end of the wait. Default:
	// RetryLater.
	Busy ConflictPolicy
}

// Validate reports every problem of o at once.
func (o ExclusiveOptions) Validate() error {
	return errtext.Join(o.Terms.Validate(), o.Busy.validate("ExclusiveOptions.Busy"))
}

// Exclusive returns a middleware under which no two jobs of the same key run at the same time, in
// all processes with the same table in PostgreSQL, or the same Redis and prefix. Jobs of different
// kinds exclude each other if their keys are equal.
//
// The handler's ctx is canceled before the lease can end, at the job's timeout, and when River
// cancels the job. The key is released when the handler has returned or panicked, not before. So if
// River rescues a job whose handler still runs, the second run does not begin.
//
// River gets what the handler returns. If the handler returns nil after its lease was lost, River
// gets the reason, and works the job again. If the handler does not run:
//
//   - The key is busy: o.Busy decides.
//   - The server of the keys is unavailable, or the Locker is closed: River snoozes the job for as
//     long as that has lasted, 1 s to 1 min and up to a quarter more. No attempt is used up.
//   - The job has no key: River cancels it.
//
// Exclusive panics if locks or key is nil, or if o is not valid.
func Exclusive(locks *lockcore.Locker, key KeyFunc, o ExclusiveOptions) rivertype.WorkerMiddleware {
	m := newMiddleware("Exclusive", locks, key, o.Validate(), o.Terms, o.Busy)
	m.guard = func(ctx context.Context, c call, fn func(context.Context) error) error {
		return guard.Exclusive(ctx, locks, c.name, c.terms, fn)
	}
	return m
}

// LimitedOptions are the options of [Limited]. With the zero value a job waits 2 s for room (or the
// Locker's Terms.Wait), and then comes back later.
type LimitedOptions struct {
	// Terms of the key. Default of Name: the class of the key. Wait is bounded, see
	// [ConflictPolicy].
	Terms lockcore.Terms
	// Busy decides what happens to a job for which there is no room at the end of the wait. Default:
	// RetryLater.
	Busy ConflictPolicy
}

// Validate reports every problem of o at once.
func (o LimitedOptions) Validate() error {
	return errtext.Join(o.Terms.Validate(), o.Busy.validate("LimitedOptions.Busy"))
}

// Limited returns a middleware under which at most n jobs of the same key run at the same time, in
// all processes with the same table in PostgreSQL, or the same Redis and prefix. A job of
// [Exclusive] with the same key waits until all others have ended, and keeps new ones out. All
// middlewares of a key should have the same n.
//
// A job for which there is no room is treated as a job of Exclusive whose key is busy, and so are
// errors. Limited panics if locks or key is nil, or if n or o is not valid. n must be at least 1.
func Limited(locks *lockcore.Locker, key KeyFunc, n int, o LimitedOptions) rivertype.WorkerMiddleware {
	limit := lockcore.Limit{N: n}
	m := newMiddleware("Limited", locks, key, errtext.Join(limit.Validate(), o.Validate()), o.Terms, o.Busy)
	m.limit = limit
	m.guard = func(ctx context.Context, c call, fn func(context.Context) error) error {
		return guard.Limited(ctx, locks, c.name, limit, c.terms, fn)
	}
	return m
}

// ThrottleOptions are the options of [Throttled]. With the zero value a job waits 2 s for its turn
// (or the Locker's Terms.Wait), and then comes back later.
type ThrottleOptions struct {
	lockcore.ThrottleOptions

	// Busy decides what happens to a job whose turn is after the end of the wait. Default:
	// RetryLater.
	Busy ConflictPolicy
}

// Validate reports every problem of o at once.
func (o ThrottleOptions) Validate() error {
	return errtext.Join(o.ThrottleOptions.Validate(), o.Busy.validate("ThrottleOptions.Busy"))
}

// Throttled returns a middleware under which the jobs of a key begin at the rate r, in all processes
// with the same table in PostgreSQL, or the same Redis and prefix. Nothing is held while the handler
// runs. A further attempt takes the cost again. [lockcore.Rate] has the rules of rates.
//
// o.Busy decides what happens to a job whose turn is after the wait. With RetryLater it comes back and
// uses up no attempt.
// Other errors are those of [Exclusive]. Throttled panics if locks or key is nil, or if r or o is
// not valid.
func Throttled(locks *lockcore.Locker, key KeyFunc, r lockcore.Rate, o ThrottleOptions) rivertype.WorkerMiddleware {
	terms := lockcore.Terms{Name: o.Name, Wait: o.Wait, MaxWaiting: o.MaxWaiting}
	m := newMiddleware("Throttled", locks, key, errtext.Join(r.Validate(), o.Validate()), terms, o.Busy)
	m.limit = lockcore.Limit{Rate: r}
	m.guard = func(ctx context.Context, c call, fn func(context.Context) error) error {
		return guard.Throttled(ctx, locks, c.name, r, lockcore.ThrottleOptions{Name: c.terms.Name, Wait: c.terms.Wait, MaxWaiting: c.terms.MaxWaiting}, fn)
	}
	return m
}
