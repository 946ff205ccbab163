package asynqmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

// decorator is the part that all middlewares of this package have in common. A middleware has one
// decorator for all tasks. It is made outside of the asynq.MiddlewareFunc, because asynq calls the
// functions of mux.Use again for each task.
type decorator struct {
	locks    *lockcore.Locker
	keys     LimitsFunc
	terms    lockcore.Terms
	busy     ConflictPolicy
	claims   bool // of Once
	adopt    bool
	limit    LimitFunc    // of the one key; nil: the limits of keys
	limited  bool         // of LimitedAll: each key needs a limit
	reported sync.Once    // for the report that Configure is missing
	mean     parking.Mean // of the holds
}

// newDecorator panics if locks or keys is nil, or if invalid is not. what is the name of keys in
// the text of the panic.
func newDecorator(fn string, locks *lockcore.Locker, what string, keys LimitsFunc, invalid error, t lockcore.Terms, b ConflictPolicy) *decorator {
	var errs []error
	if locks == nil {
		errs = append(errs, errors.New("asynqmw: locks must not be nil"))
	}
	if keys == nil {
		errs = append(errs, fmt.Errorf("asynqmw: %s must not be nil", what))
	}
	if err := errtext.Join(append(errs, invalid)...); err != nil {
		panic(errtext.Prefix("asynqmw: "+fn, err).Error())
	}
	return &decorator{locks: locks, keys: keys, terms: t, busy: b}
}

// answered returns what asynq gets for a run. answer is the handler's error, and err the
// guard's, which wraps answer. If answer is the error of a ctx, err adds why the lease ended. A
// handler that returned nil has succeeded, even if its lease was lost: a retry cannot undo the run.
func answered(answer, err error) error {
	if answer == nil {
		return nil
	}
	return err
}

// middleware returns process as a middleware.
func (d *decorator) middleware(process func(context.Context, *asynq.Task, asynq.Handler) error) asynq.MiddlewareFunc {
	return func(next asynq.Handler) asynq.Handler {
		if next == nil {
			panic("asynqmw: handler must not be nil")
		}
		return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error { return process(ctx, t, next) })
	}
}

// begin returns the keys of a delivery with their limits, the terms, and a ctx that names the task to
// the waiters of its keys. keys has at least one key, unless there is an error. The error is
// guard.Unguarded or what asynq gets. begin sets *one if all tasks of the key have the same
// payload, see payloadKey.
func (d *decorator) begin(ctx context.Context, t *asynq.Task, one *atomic.Bool) (withTask context.Context, keys []KeyLimit, terms lockcore.Terms, err error) {
	id, onServer := asynq.GetTaskID(ctx)
	if onServer {
		ctx = lockcore.WithTask(ctx, id)
	}
	if missing := d.busy.withoutConfigure(); missing != "" && !configured(ctx) {
		d.reported.Do(func() {
			access.Of(d.locks).Report(ctx, event.Misconfigured{
				Problem: "asynqmw: the asynq.Config of this server did not pass through Configure: " + missing,
			})
		})
	}
	terms = d.terms
	keyCtx := ctx
	if one != nil {
		keyCtx = context.WithValue(ctx, payloadKey{}, one)
	}
	keys, err = d.keys(keyCtx, t)
	if errors.Is(err, guard.Unguarded) {
		return ctx, nil, terms, guard.Unguarded
	}
	if terms.Name == "" {
		terms.Name = className(keys)
	}
	if err == nil {
		err = checkKeys(keys)
	}
	what := "key"
	if err == nil && (d.limit != nil || d.limited) {
		if d.limited {
			err = checkLimits(keys)
		} else {
			keys[0].Limit, err = d.limit(ctx, t)
		}
		if err != nil {
			what = "limit"
		}
	}
	if err == nil {
		err = terms.Validate() // Name may be too long
	}
	if err != nil {
		return ctx, nil, terms, d.noKey(ctx, t, terms.Name, what, err)
	}
	terms.Wait = d.wait(ctx)
	return ctx, keys, terms, nil
}

// noKey returns what asynq gets for a task without a key, fingerprint or limit, and reports it.
func (d *decorator) noKey(ctx context.Context, t *asynq.Task, name, what string, err error) error {
	access.Of(d.locks).Report(ctx, event.NoKey{Name: name})
	return guard.NoEffect(&keyError{task: t.Type(), what: what, err: err})
}

const maxWait = 24 * time.Hour // the longest wait that lockcore allows, other than Forever

// wait returns how long this delivery waits for its key, see ConflictPolicy.
func (d *decorator) wait(ctx context.Context) time.Duration {
	wait, inside := d.terms.Wait, d.claims && access.BeforeWork(ctx)
	switch {
	case wait != 0:
	case inside:
		wait = lockcore.NoWait
	default:
		wait = d.locks.Terms().Wait
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait
	}
	left := time.Until(deadline)
	most := min(max(left-min(parking.MaxMargin, left/4), 1), maxWait)
	if d.busy == RetryLater && lastAttempt(ctx) {
		if inside { // a run that hangs must not keep the outer key from its other tasks until the deadline
			most = min(most, max(wait, cmp.Or(d.terms.Lease, d.locks.Terms().Lease)))
		}
		return most
	}
	return min(wait, most) // NoWait is negative
}

// parkable returns the delivery of ctx, or nil if tasks are never parked: without Parking, or under
// another ConflictPolicy than RetryLater. names are the names of keys in the backend.
func (d *decorator) parkable(ctx context.Context, kind event.Kind, keys []KeyLimit, names []string, terms lockcore.Terms) *parking.Delivery {
	s, _ := ctx.Value(configuredKey{}).(*server)
	id, ok := asynq.GetTaskID(ctx)
	if s == nil || !ok || d.busy != RetryLater {
		return nil
	}
	name, _ := asynq.GetQueueName(ctx)
	parked := make([]parking.Key, len(keys))
	for i, k := range keys {
		parked[i] = parking.Key{Name: names[i], Limit: k.Limit, Weight: s.weightOf(ctx, d.locks, k.Key)}
	}
	v := s.Delivery(parking.Request{
		Locks: d.locks, Kind: kind, Keys: parked, Terms: terms, Task: taskName(name, id), Last: lastAttempt(ctx), Mean: &d.mean,
	})
	s.reportIdle(ctx, d.locks, v)
	return v
}

// refused returns what asynq gets for err, the error of a guard that did not run the handler. It is
// marked with NoEffect, because a Once around this middleware must not record that its handler has
// failed.
func (d *decorator) refused(ctx context.Context, name string, at *parking.Place, err error) error {
	var b *lockcore.BusyError
	if !errors.As(err, &b) {
		if errors.Is(err, parking.ErrRefused) { // a retry would end in the group too
			err = &archivedError{err, ""}
		}
		return guard.NoEffect(err)
	}
	if d.busy == Skip {
		return nil
	}
	c := &conflict{err: err, busy: d.busy, place: at, last: d.busy != Drop && lastAttempt(ctx), bare: !configured(ctx)}
	// If ctx was canceled, the cause is a shutdown or an operator. A shutdown uses up no retry, and
	// the operator knows of the cancellation.
	if c.last && !errors.Is(ctx.Err(), context.Canceled) {
		access.Of(d.locks).Report(ctx, event.ConflictLost{Name: name, Holder: b.Holder})
	}
	return guard.NoEffect(c) //planted:conflict-has-no-effect
}
