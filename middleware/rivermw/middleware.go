package rivermw

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

// middleware is one guard of this package. It serves all jobs.
type middleware struct {
	river.MiddlewareDefaults

	locks  *lockcore.Locker
	key    KeyFunc
	terms  lockcore.Terms
	busy   ConflictPolicy
	claims bool           // of Once
	limit  lockcore.Limit // zero: the key alone
	guard  func(context.Context, call, func(context.Context) error) error
	mean   parking.Mean // of the holds
	outage atomic.Int64 // when the server of the keys was found unavailable, in Unix ns; 0: it is not
}

// call is one delivery of a job: River has given it to a worker.
type call struct {
	job   *rivertype.JobRow
	name  string // of the key
	terms lockcore.Terms
}

// newMiddleware panics if locks or key is nil, or if invalid is not.
func newMiddleware(fn string, locks *lockcore.Locker, key KeyFunc, invalid error, t lockcore.Terms, b ConflictPolicy) *middleware {
	var errs []error
	if locks == nil {
		errs = append(errs, errors.New("rivermw: locks must not be nil"))
	}
	if key == nil {
		errs = append(errs, errors.New("rivermw: key must not be nil"))
	}
	if err := errtext.Join(append(errs, invalid)...); err != nil {
		panic(errtext.Prefix("rivermw: "+fn, err).Error())
	}
	return &middleware{locks: locks, key: key, terms: t, busy: b}
}

type guardedKey struct{}

// guarded is what the outermost guard of a delivery has put into its ctx, with the Locker of the innermost.
type guarded struct {
	locks *lockcore.Locker
	began time.Time
}

// Work implements rivertype.WorkerMiddleware.
func (m *middleware) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	outer, inside := ctx.Value(guardedKey{}).(guarded)
	began := outer.began // all guards of a delivery share the time until River rescues it
	if !inside {
		began = time.Now()
	}
	ctx = context.WithValue(lockcore.WithTask(ctx, "river/"+strconv.FormatInt(job.ID, 10)), guardedKey{}, guarded{m.locks, began})
	c := call{job: job, terms: m.terms}
	k, err := m.key(ctx, job)
	if errors.Is(err, guard.Unguarded) {
		return doInner(ctx)
	}
	if c.terms.Name == "" {
		c.terms.Name = k.Class
	}
	if err = errtext.Join(err, c.terms.Validate()); err == nil { // Name may be too long
		err = k.Validate()
	}
	if err != nil {
		return m.noKey(ctx, c, "key", err)
	}
	c.name = k.String()
	kind := event.KindExclusive
	if m.claims {
		c.name, kind = OnceKey(job.Kind, k), event.KindOnce
	}
	w, _ := ctx.Value(wakeKey{}).(pools)
	rescued := rescueAfter
	if w != nil {
		rescued = w.rescueAfter()
	}
	c.terms.Wait = m.wait(ctx, rescued/2-time.Since(began))

	var v *parking.Delivery
	if w != nil && m.busy == RetryLater {
		v = w.delivery(ctx, job.Queue, parking.Request{
			Locks: m.locks, Kind: kind, Keys: []parking.Key{{Name: c.name, Limit: m.limit, Weight: 1}},
			Terms: c.terms, Task: task(job.Queue, job.ID), Mean: &m.mean,
		})
	}
	old := noteOf(job)
	if job.Attempt > len(job.Errors)+1 && v.RanAlready(ctx) { // only a job that has succeeded before has more attempts than errors
		return nil
	}
	var answer error
	ran, at, err := v.Run(ctx, c.terms, func(terms lockcore.Terms) (ran bool, err error) {
		c.terms = terms
		err = m.guard(ctx, c, func(ctx context.Context) error {
			if time.Since(began) >= rescued {
				access.SkipMinHold(ctx)
				return guard.NoEffect(errRescued)
			}
			ran = true
			defer v.Begin(ctx)()
			if old.Waits != "" {
				note{old.Waits, time.Now()}.set(ctx)
			}
			answer = noEffectOfSnooze(doInner(ctx))
			if old.Waits != "" {
				old.ended(ctx, answer)
			}
			return answer
		})
		return ran, err
	})
	if !errors.Is(err, lockcore.ErrUnavailable) && !errors.Is(err, lockcore.ErrClosed) {
		m.outage.Store(0)
	}
	switch {
	case ran:
		return m.answer(err)
	case time.Since(began) >= rescued:
		return untouched{guard.NoEffect(errRescued)}
	}
	return m.refused(ctx, at, err)
}

// errRescued says that River may have given the job to another worker.
var errRescued = errors.New("rivermw: not run: the worker was paused, and River may have given the job to another one")

// untouched is an error for which River stores nothing: River would store it for the run of the other
// worker. To River it is the result of a batch of no jobs.
type untouched struct{ error }

func (u untouched) Unwrap() error             { return u.error }
func (untouched) Is(target error) bool        { return target == lockcore.ErrNotRun }
func (untouched) Jobs() []*rivertype.JobRow   { return nil }
func (untouched) ErrorsByID() map[int64]error { return nil }

// task returns the name of a job for package parking. River allows no slash in the name of a queue.
func task(queue string, id int64) string { return queue + "/" + strconv.FormatInt(id, 10) }

// noEffectOfSnooze marks the error of a handler that snoozes its job: it asks for another run, so it
// is not the outcome of a Once.
func noEffectOfSnooze(err error) error {
	if errors.Is(err, (*rivertype.JobSnoozeError)(nil)) {
		return guard.NoEffect(err)
	}
	return err
}

// answer returns what River gets for a run. The handler itself may have called a guard that found
// its key busy, and guard.Paused.
func (m *middleware) answer(err error) error {
	_, failed := errors.AsType[*failedError](err)
	if failed || errors.Is(err, (*rivertype.JobSnoozeError)(nil)) || errors.Is(err, (*rivertype.JobCancelError)(nil)) {
		return err
	}
	if p, ok := errors.AsType[*guard.PausedError](err); ok {
		return snooze(err, p.For)
	}
	if b, ok := errors.AsType[*lockcore.BusyError](err); ok {
		return snooze(err, parking.RetryAfter(b))
	}
	return err
}

// refused returns what River gets for err, the error of a guard that did not run the handler. It is
// marked with NoEffect, because a Once around this middleware must not record a failure.
func (m *middleware) refused(ctx context.Context, at *parking.Place, err error) error {
	if err == nil { // a replay
		return nil
	}
	b, busy := errors.AsType[*lockcore.BusyError](err)
	_, failed := errors.AsType[*guard.RecordedError](err)
	switch {
	case at != nil:
		note{Waits: at.Text}.set(ctx)
		err = snooze(err, at.Delay)
	case ctx.Err() != nil && (busy || !failed && errors.Is(err, lockcore.ErrNotRun)): // River stops, or the job was canceled
		err = snooze(err, 0)
	case busy && m.busy == Skip:
		return nil
	case busy && m.busy == Cancel:
		err = river.JobCancel(err)
	case busy && m.busy == Fail:
		err = &failedError{err}
	case busy:
		note{Waits: err.Error()}.set(ctx)
		err = snooze(err, parking.RetryAfter(b))
	case errors.Is(err, lockcore.ErrUnavailable), errors.Is(err, lockcore.ErrClosed):
		err = snooze(err, m.untilAvailable())
	case failed, errors.Is(err, lockcore.ErrMismatch), errors.Is(err, lockcore.ErrKey):
		err = river.JobCancel(err)
	}
	return guard.NoEffect(err)
}

// noKey returns what River gets for a job without a key or fingerprint, and reports it.
func (m *middleware) noKey(ctx context.Context, c call, what string, err error) error {
	access.Of(m.locks).Report(ctx, event.NoKey{Name: c.terms.Name})
	return guard.NoEffect(river.JobCancel(&keyError{c.job.Kind, what, err}))
}

const (
	leastOutage = time.Second
	mostOutage  = time.Minute
)

// untilAvailable returns the delay of a job that came while the server of the keys was unavailable:
// as long as that has lasted here.
func (m *middleware) untilAvailable() time.Duration {
	now := time.Now().UnixNano()
	m.outage.CompareAndSwap(0, now)
	return spread(min(max(time.Duration(now-m.outage.Load()), leastOutage), mostOutage))
}

// wait returns how long this delivery waits for its key, at most most, see ConflictPolicy.
func (m *middleware) wait(ctx context.Context, most time.Duration) time.Duration {
	wait := m.terms.Wait
	switch {
	case wait != 0:
	case m.claims && access.BeforeWork(ctx):
		wait = lockcore.NoWait
	default:
		wait = m.locks.Terms().Wait
	}
	if most <= 0 {
		return lockcore.NoWait
	}
	return min(wait, most) // NoWait is negative
}
