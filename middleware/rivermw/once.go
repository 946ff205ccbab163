package rivermw

import (
	"context"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// OnceOptions are the options of [Once]. With the zero value an abandoned key runs again (at least
// once), a record is kept for 24 h, and other args of a done key are reported.
type OnceOptions struct {
	// Terms of the key while the handler runs. Default of Name: the class of the key. Default of
	// Wait: none inside a hold of another key, such as an Exclusive's, otherwise the Locker's Wait.
	Terms lockcore.Terms
	// Busy decides what happens to a job if another job of its key still runs at the end of the
	// wait. Default: RetryLater.
	Busy ConflictPolicy
	// Keep is how long the record is kept: 1 s to 366 days. Default: 24 h. It must be longer than
	// the time in which a further attempt, the producer or an operator may bring the same work
	// again.
	Keep time.Duration
	// Mode decides what happens to an abandoned key. Default: guard.AtLeastOnce, the next job takes
	// it over.
	Mode guard.Mode
	// Fingerprint returns the bytes of the args that must be equal in all jobs of a key, for example
	// the amount. A job with others is canceled with a *lockcore.MismatchError if its key is done,
	// running or abandoned. If it returns an error, the job is canceled, and the Observer gets
	// event.NoKey. It is called from several goroutines.
	//
	// Default: no job is canceled for that reason. If the key is done and any of the args differ,
	// the job completes without a run, and the Observer gets event.PayloadDiffers.
	Fingerprint func(*rivertype.JobRow) ([]byte, error)
}

// Validate reports every problem of o at once.
func (o OnceOptions) Validate() error {
	return errtext.Join(o.guard().Validate(), o.Busy.validate("OnceOptions.Busy"))
}

func (o OnceOptions) guard() guard.OnceOptions {
	return guard.OnceOptions{Terms: o.Terms, Keep: o.Keep, Mode: o.Mode}
}

// Once returns a middleware under which the work of a key is done once. After a handler has returned
// nil, and that is recorded, no job of the same kind and key runs within o.Keep. The key of the
// record is the kind, a slash and the key (charge/payment:7), see [OnceKey]; in the handler
// guard.Current returns it.
//
// If the key is free, the handler runs, as under [Exclusive]. Otherwise:
//
//   - The key is done: River gets nil, and the job is completed. With other args the Observer gets
//     event.PayloadDiffers. With o.Fingerprint such a job is canceled.
//   - Another job of the key runs: the job waits. At the end of the wait o.Busy decides.
//   - The key is abandoned, for example because its process died: the job takes it over, see
//     guard.Attempt. With guard.AtMostOnce River gets a *lockcore.AbandonedError, which uses up an
//     attempt, until an operator clears the key.
//
// If the handler does not return nil:
//
//   - It returns an error: River gets it, the key is released, and the next attempt runs. If the run
//     was a takeover, the next one is one too. With guard.AtMostOnce the failure is recorded, unless
//     guard.NoEffect marks it or it snoozes the job. River then cancels the job at its next attempt.
//   - It returns guard.Final(err): the failure is recorded in either mode.
//   - It returns guard.Unknown(err): River gets the error, and the key is abandoned.
//   - It panics: the panic passes on, and the key is released. After a takeover, or with
//     guard.AtMostOnce, it is abandoned.
//
// River delivers the job of a killed worker again RescueStuckJobsAfter (1 h) after its begin. Once
// panics if locks or key is nil, or if o is not valid.
func Once(locks *lockcore.Locker, key KeyFunc, o OnceOptions) rivertype.WorkerMiddleware {
	m := newMiddleware("Once", locks, key, o.Validate(), o.Terms, o.Busy)
	m.claims = true
	m.guard = func(ctx context.Context, c call, fn func(context.Context) error) error {
		g := o.guard()
		g.Terms = c.terms
		f := c.job.EncodedArgs
		if o.Fingerprint == nil {
			g.ReportOnly = true
		} else {
			var err error
			if f, err = o.Fingerprint(c.job); err != nil {
				return m.noKey(ctx, c, "fingerprint", err)
			}
		}
		g.Fingerprint = idempotency.Fingerprint(nil, f)
		_, err := guard.Once(ctx, locks, c.name, g, fn)
		return err
	}
	return m
}
