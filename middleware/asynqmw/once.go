package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// OnceOptions are the options of [Once]. With the zero value an abandoned key runs again (at least
// once), a record is kept for 24 h, and another payload of a done key is reported.
type OnceOptions struct {
	// Terms of the key while the handler runs. Default of Name: the class of the key. Default of
	// Wait: none inside a hold of another key, such as an Exclusive's, otherwise the Locker's Wait.
	// It ends before the task's deadline, see [ConflictPolicy].
	Terms lockcore.Terms
	// Busy decides what happens to a task if another task of its key still runs at the end of the
	// wait. Default: RetryLater.
	Busy ConflictPolicy
	// Keep is how long the record is kept: 1 s to 366 days. Default: 24 h. It must be longer than
	// the time in which the last retry, the producer or an operator may bring the same work again.
	// An operator may run an archived task after weeks.
	Keep time.Duration
	// Mode decides what happens to an abandoned key. Default: guard.AtLeastOnce, the next task
	// takes it over.
	Mode guard.Mode
	// Fingerprint returns the part of the payload that must be equal in all tasks of a key:
	// [Fields], [Except], [WholePayload] or your own function. A task with another fingerprint fails
	// with a *lockcore.MismatchError if its key is done, running or abandoned. asynq retries the
	// task, and archives it after its last retry. With guard.AtMostOnce asynq archives it at once,
	// because after an operator has cleared the key a retry would run that payload. A change of this
	// option changes the fingerprints: after such a deploy, tasks of done keys fail until Keep has
	// passed.
	//
	// By default no task fails for that reason. If the key is done and the payload differs, compared
	// as by WholePayload, the task completes without a run, and the Observer gets
	// event.PayloadDiffers.
	// Payloads under keys of ByTaskID and ByPayload are not compared, because such a key has only
	// one payload.
	Fingerprint FingerprintFunc
	// MaxResult is the maximum size of a result of [SetResult] in bytes. Default: 256 KiB. At most
	// 32 MiB. A larger result is not replayed, but the key is done.
	MaxResult int
	// Adopt has the meaning of ExclusiveOptions.Adopt. The key of a ticket contains the type of the
	// task, see [OnceKey], so the task must have the same type as the one that made the ticket. A
	// hold of httpmw has another key and another form of record: adopt it with
	// lockcore.Locker.Adopt in the handler.
	Adopt bool
}

// Validate reports every problem of o at once.
func (o OnceOptions) Validate() error {
	return errtext.Join(o.guard().Validate(), o.Busy.validate("OnceOptions.Busy"))
}

// guard returns the options of guard.OnceValue, without the terms and the fingerprint of a task.
func (o OnceOptions) guard() guard.OnceOptions {
	return guard.OnceOptions{
		Terms: o.Terms, Keep: o.Keep, Mode: o.Mode, MaxResult: o.MaxResult, Codec: idempotency.Bytes(),
	}
}

// Once returns a middleware under which the work of a key is done once. After a handler has
// returned nil, and that is recorded, no task of the same type and key runs within o.Keep. The key
// in Redis is the type, a slash and the key (charge/payment:7), so that two types never share a
// record. [Key] returns it in the handler, and [OnceKey] elsewhere.
//
// If the key is free, the handler runs, as under Exclusive. Otherwise:
//
//   - The key is done: asynq gets nil, and the stored result of SetResult is written to this task's
//     ResultWriter.
//   - The key is done by a task with another payload: the same, and the Observer gets
//     event.PayloadDiffers. With o.Fingerprint asynq gets a *lockcore.MismatchError instead.
//   - Another task of the key runs: the task waits. At the end of the wait o.Busy decides.
//   - The key is abandoned, for example because its process died: the task takes it over, see
//     guard.Attempt. With guard.AtMostOnce asynq gets a *lockcore.AbandonedError and archives the
//     task. After the death of a process the key is abandoned at the end of its lease, and asynq
//     delivers the task again after 60 to 120 s.
//
// If the handler does not return nil:
//
//   - It returns an error: asynq gets it, the key is released, and the retry runs. If the run was a
//     takeover, the retry is one too. With guard.AtMostOnce the failure is recorded, unless
//     guard.NoEffect marks it, and the next attempt gets a *guard.RecordedError.
//   - It returns guard.Final(err): the failure is recorded in either mode, and the next attempt
//     gets a *guard.RecordedError.
//   - It returns guard.Unknown(err): asynq gets the error, and the key is abandoned. The retry
//     takes it over, or with guard.AtMostOnce gets a *lockcore.AbandonedError.
//   - It panics: the panic passes on, and the key is released. After a takeover, or with
//     guard.AtMostOnce, it is abandoned.
//
// The AbandonedError and the RecordedError wrap asynq.SkipRetry, so asynq archives the task at its
// first such error. The text of the AbandonedError contains the two commands with which an operator
// runs the task: the first clears the key, and the second runs the archived task. Without the first
// the task fails again. That lasts for Keep, at least 100 days, from the last such error. asynq
// deletes an archived task after 90 days, but only when it archives another one. So do not run an
// archived task that is older than that. After all other errors of this package asynq retries the
// task.
//
// Once panics if locks or key is nil, or if o is not valid.
func Once(locks *lockcore.Locker, key KeyFunc, o OnceOptions) asynq.MiddlewareFunc {
	d := newDecorator("Once", locks, "key", key.keys(), o.Validate(), o.Terms, o.Busy)
	d.adopt, d.claims = o.Adopt, true
	g := o.guard()
	return d.middleware(func(ctx context.Context, t *asynq.Task, next asynq.Handler) error {
		return d.once(ctx, t, next, o.Fingerprint, g)
	})
}

// once runs next for t. fingerprint is the option, and g has all options that are the same for each
// task.
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
	onceKey := OnceKey(t.Type(), keys[0].Key)
	res.key = onceKey
	ctx, err = d.adopting(ctx, t, event.KindOnce, onceKey)
	if err != nil {
		return err
	}
	v := d.parkable(ctx, event.KindOnce, keys, []string{onceKey}, terms)
	ran, at, err := v.Run(ctx, terms, func(terms lockcore.Terms) (ran bool, err error) {
		g.Terms = terms
		done, err = guard.OnceValue(ctx, d.locks, onceKey, g, func(ctx context.Context) ([]byte, error) {
			ran = true
			defer v.Begin(ctx)()
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
		return d.refused(ctx, terms.Name, at, d.archived(ctx, onceKey, g.Mode, err))
	}
	if err := replay(t, outer, done.Value); err != nil {
		return guard.NoEffect(fmt.Errorf("asynqmw: %q is done, but its result did not reach asynq: %w", keys[0].Key, err))
	}
	return nil
}
