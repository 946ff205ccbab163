package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// OnceOptions of [Once]. The zero value is safe: at least once, remembered for 24 h; another payload of a done key is reported.
type OnceOptions struct {
	// Terms of the key while the handler runs. Name is the class of the key unless it is set here. Wait is cut short
	// before the task's deadline, see [ConflictPolicy]. Limit and Weight must be 0.
	Terms lockcore.Terms
	// Busy says what becomes of a task whose key is being run by another when the wait is over. Default: RetryLater.
	Busy ConflictPolicy
	// Keep is how long the record is remembered. Default 24 h. 1 s to 366 days. It must be longer than the last retry,
	// and the producer, may bring the same work again; an operator may run an archived task after weeks.
	Keep time.Duration
	// Mode says what becomes of a key whose run never said how it ended. Default: guard.AtLeastOnce, it is run again.
	Mode guard.Mode
	// Fingerprint says which part of the payload must be equal in all tasks of a key: [Fields], [Except], [WholePayload] or
	// a function. The same key with another fingerprint, done, running or abandoned, is refused with a
	// *lockcore.MismatchError, which asynq retries and in the end archives. A change of this option changes the
	// fingerprints: after such a deploy, tasks of done keys are refused until Keep is over.
	//
	// Default: nothing is refused. A task whose key is done and whose payload differs, compared as WholePayload does,
	// completes without a run, and the Observer gets guard.PayloadDiffers. Payloads under keys of ByTaskID and
	// ByPayload are not compared, because such a key has only one payload.
	Fingerprint FingerprintFunc
	// MaxResult bounds what SetResult stores, in bytes. Default 256 KiB, at most 32 MiB. A larger result is not replayed,
	// but the key is done all the same.
	MaxResult int
	// Adopt is ExclusiveOptions.Adopt. The key of a ticket contains the type of the task, see [OnceKey],
	// so the task must have the same type as the one that made the ticket. A hold of httpmw has another
	// key and another form of record: adopt it with lockcore.Locker.Adopt in the handler.
	Adopt bool
}

// Validate reports every problem of o at once.
func (o OnceOptions) Validate() error {
	return errtext.Join(o.guard().Validate(), o.Busy.validate("OnceOptions.Busy"))
}

// guard is what guard.OnceValue needs of o, except for the terms and the fingerprint of a task.
func (o OnceOptions) guard() guard.OnceOptions {
	return guard.OnceOptions{
		Terms: o.Terms, Keep: o.Keep, Mode: o.Mode, MaxResult: o.MaxResult, Codec: idempotency.Bytes(),
	}
}

// Once returns a middleware under which the work of a key is done once: after a handler has returned nil, and that is
// recorded, no task of the same type and key is run within o.Keep. The key in Redis is the type, a slash and the key,
// charge/payment:7, so that two types never share a record; see [OnceKey].
//
//	not done                 the handler runs, as under Exclusive
//	done                     nil; what SetResult stored goes to this task's ResultWriter
//	done, another payload    the same, and a guard.PayloadDiffers; with o.Fingerprint a *lockcore.MismatchError
//	another one is running   waits, then what o.Busy says
//	the handler fails        its error; the key is freed and the retry runs. With guard.AtMostOnce the failure is
//	                         recorded unless guard.NoEffect marks it, and each later attempt gets a *guard.RecordedError
//	guard.Final(err)         the same in either mode
//	it panics                the panic passes on; the key is freed, with guard.AtMostOnce left abandoned
//	guard.Unknown(err)       its error; the key is left abandoned: the retry takes it over, see guard.Attempt; with
//	                         guard.AtMostOnce it gets a *lockcore.AbandonedError
//	the process died         the key is free one lease later, and asynq delivers the task again after 60 to 120 s: that
//	                         attempt takes over; with guard.AtMostOnce a *lockcore.AbandonedError, until an operator has looked and cleared the key (holdfast clear -once), or Keep (at least 24 h)
//	                         is over
//
// Every error of ours, abandoned keys included, is one that asynq retries and in the end archives, so that nothing is
// lost without a trace: none wraps asynq.SkipRetry. Such a task runs when the key is cleared and the task run again.
//
// Once panics if locks or key is nil, or if o is not valid.
func Once(locks *lockcore.Locker, key KeyFunc, o OnceOptions) asynq.MiddlewareFunc {
	d := newDecorator("Once", locks, "key", key.keys(), o.Validate(), o.Terms, o.Busy)
	d.adopt = o.Adopt
	g := o.guard()
	return d.middleware(func(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
		return d.once(ctx, t, next, o.Fingerprint, g)
	})
}

// once runs next for t. fingerprint is the option, and g has all options that are the same for each task.
func (d *decorator) once(ctx context.Context, t *asynq.Task, next asynq.Handler, fingerprint FingerprintFunc, g guard.OnceOptions) error {
	res, outer := newResult(ctx, t)
	var one atomic.Bool // see payloadKey
	ctx, keys, terms, err := d.begin(ctx, t, &one)
	switch {
	case errors.Is(err, guard.Unguarded):
		return next.ProcessTask(res.within(ctx), t)
	case err != nil:
		return err
	}
	if fingerprint == nil && !one.Load() {
		fingerprint, g.ReportOnly = WholePayload, true
	}
	if fingerprint != nil {
		f, err := fingerprint(t)
		if err != nil {
			return d.noKey(ctx, t, terms.Name, "fingerprint", err)
		}
		g.Fingerprint = idempotency.Fingerprint(nil, f)
	}
	var answer error
	var done guard.Result[[]byte]
	onceKey := OnceKey(t.Type(), keys[0])
	ctx, err = d.adopting(ctx, t, lockcore.KindOnce, onceKey)
	if err != nil {
		return err
	}
	v := d.parkable(ctx, backend.KindOnce, []string{onceKey}, terms)
	ran, at, err := v.run(ctx, terms, func(terms lockcore.Terms) (ran bool, err error) {
		g.Terms = terms
		done, err = guard.OnceValue(ctx, d.locks, onceKey, g, func(ctx context.Context) ([]byte, error) {
			ran = true
			defer v.begin(ctx)()
			answer = next.ProcessTask(res.within(ctx), t)
			return res.take(), answer
		})
		return ran, err
	})
	switch {
	case ran:
		return answered(answer, err)
	case errors.Is(err, guard.ErrNoResult): // done; there is nothing to write
	case err != nil:
		return d.refused(ctx, terms.Name, at, err)
	}
	if err := replay(t, outer, done.Value); err != nil {
		return guard.NoEffect(fmt.Errorf("asynqmw: %q is done, but its result did not reach asynq: %w", keys[0], err))
	}
	return nil
}
