package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/internal/roundtrip"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	defaultKeep  = 24 * time.Hour
	maxKeep      = 366 * 24 * time.Hour
	maxMaxResult = 32 << 20
)

// Mode decides what happens to an abandoned key. A key is abandoned if its run began and ended
// without an outcome: its process died, its lease was lost, or the run panicked under AtMostOnce,
// returned [Unknown], or was a takeover that recorded nothing.
type Mode int

const (
	// AtLeastOnce takes an abandoned key over and runs the work again. Its effect may happen twice.
	AtLeastOnce Mode = iota
	// AtMostOnce returns a *lockcore.AbandonedError for an abandoned key. It does so until an
	// operator clears the key (holdfast clear -once, or idempotency.Clear), or Keep (at least
	// 100 days) has passed since the run or the last such error. After that time the key is
	// forgotten and runs again.
	//
	//   - A failed run is recorded and replayed, unless its error is marked with NoEffect or Unknown.
	//   - A nested guard's BusyError, and any other lockcore.ErrNotRun of it, is recorded as a
	//     failure. Nest that guard outside of Once, or wrap its error in NoEffect if nothing has
	//     happened yet. The text of the error says so too, and the Observer gets
	//     event.Misconfigured.
	AtMostOnce
)

// Outcome is the result of a call of Once.
type Outcome int

// The outcomes of a call.
const (
	NotRun      Outcome = iota // fn did not run; the error has the reason
	Ran                        // fn ran in this call
	TookOver                   // fn ran in this call, after an abandoned run
	Replayed                   // fn did not run; the call returned the record
	Transferred                // fn ran in this call and called Ticket; nothing is recorded
)

// String returns the outcome in one or two words.
func (o Outcome) String() string {
	switch o {
	case Ran:
		return "ran"
	case TookOver:
		return "took over"
	case Replayed:
		return "replayed"
	case Transferred:
		return "transferred"
	default:
		return "not run"
	}
}

// OnceOptions are the options of [Once] and [OnceValue]. The zero value means AtLeastOnce and a
// Keep of 24 h.
type OnceOptions struct {
	// Terms are those of each run. Terms.Wait bounds the time that the call waits for another run
	// of the key.
	//
	// Inside a hold of Exclusive, ExclusiveAll, Shared, Limited or Locker.Acquire, a Wait of 0
	// means NoWait, whatever Terms.Wait the Locker has. The call fails at once with a
	// *lockcore.BusyError, so that the caller can give the outer key back and come again later.
	// Inside the run of another Once the work has begun, so there the call waits.
	Terms lockcore.Terms
	// Keep is how long the record is kept, from the end of the run. An abandoned run is remembered
	// for Keep too, but at least 24 h, or 100 days with AtMostOnce. Default: 24 h. 1 s to 366 days.
	// It must be longer than the time within which the producer may deliver the same job again.
	Keep time.Duration
	// Mode decides what happens to an abandoned key. Default: AtLeastOnce.
	Mode Mode
	// Fingerprint stands for the payload, see [idempotency.Fingerprint]. A call for a key that is
	// done, held or abandoned with another fingerprint fails with a *lockcore.MismatchError. At
	// most 64 bytes. Default: fingerprints are not compared.
	Fingerprint []byte
	// ReportOnly replays a done key whose fingerprint differs, and the Observer gets
	// PayloadDiffers. The fingerprint is part of the record, so it is not compared with that of a
	// held or abandoned key. A record is compared only if it was made with ReportOnly too. Default:
	// a call with another fingerprint is refused.
	ReportOnly bool
	// Codec encodes the result of OnceValue. Default: [idempotency.JSON].
	Codec idempotency.Codec
	// MaxResult bounds the encoded result in bytes. With a larger one the key is done without its
	// result, and a replay returns ErrNoResult. Default: 256 KiB. At most 32 MiB.
	MaxResult int
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o OnceOptions) Validate() error {
	var errs []error
	if err := o.Terms.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.Keep != 0 && (o.Keep < time.Second || o.Keep > maxKeep) {
		errs = append(errs, fmt.Errorf("guard: OnceOptions.Keep is %v, must be between 1s and %v", o.Keep, maxKeep))
	}
	if o.Mode != AtLeastOnce && o.Mode != AtMostOnce {
		errs = append(errs, fmt.Errorf("guard: OnceOptions.Mode is %d, must be AtLeastOnce or AtMostOnce", o.Mode))
	}
	if len(o.Fingerprint) > access.MaxFingerprint {
		errs = append(errs, fmt.Errorf("guard: OnceOptions.Fingerprint is %d bytes long, must be at most %d", len(o.Fingerprint), access.MaxFingerprint))
	}
	if o.Codec != nil {
		if err := checkCodec(o.Codec); err != nil {
			errs = append(errs, errtext.Prefix("guard: OnceOptions.Codec", err))
		}
	}
	if o.MaxResult < 0 || o.MaxResult > maxMaxResult {
		errs = append(errs, fmt.Errorf("guard: OnceOptions.MaxResult is %d, must be between 0 and %d", o.MaxResult, maxMaxResult))
	}
	return errtext.Join(errs...)
}

// checkCodec returns an error if no record can be stored with the name of c. Otherwise the result
// of a run would be lost.
func checkCodec(c idempotency.Codec) error {
	return idempotency.Content{Ending: idempotency.Done, Codec: c.Name()}.Validate()
}

// valid reports whether Validate accepts o except for Terms, which lockcore.Locker.Claim checks.
// Each call runs it, also with options that a middleware has validated, so it does not allocate.
func (o *OnceOptions) valid() bool {
	return (o.Mode == AtLeastOnce || o.Mode == AtMostOnce) &&
		(o.Keep == 0 || o.Keep >= time.Second && o.Keep <= maxKeep) &&
		len(o.Fingerprint) <= access.MaxFingerprint &&
		o.MaxResult >= 0 && o.MaxResult <= maxMaxResult &&
		(o.Codec == nil || checkCodec(o.Codec) == nil)
}

// fill sets the defaults.
func (o *OnceOptions) fill() {
	if o.Keep == 0 {
		o.Keep = defaultKeep
	}
	if o.Codec == nil {
		o.Codec = idempotency.JSON()
	}
	if o.MaxResult == 0 {
		o.MaxResult = idempotency.DefaultMaxResult
	}
}

// Result is the result of OnceValue.
type Result[T any] struct {
	Value   T
	Outcome Outcome
	Attempt int // number of this run of the key, or of the run that was recorded, from 1
	// NotKept reports that the key is done without its result, because that was too large or could
	// not be encoded. Value is then zero if Outcome is Replayed.
	NotKept bool
}

// Once runs fn unless the key is done. If fn returns nil and that is recorded, no Once of the key
// runs its function within o.Keep. Once is [OnceValue] without a value.
func Once(ctx context.Context, locks *lockcore.Locker, key string, o OnceOptions, fn func(context.Context) error) (Outcome, error) {
	if locks == nil || fn == nil {
		return NotRun, errtext.Prefix("guard: Once: locks and fn must not be nil", lockcore.ErrNotRun)
	}
	o.Codec = nothing{}
	r, err := OnceValue(ctx, locks, key, o, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) })
	return r.Outcome, err
}

// OnceValue runs fn unless the key is done, and returns the result of fn or the recorded one. While
// fn runs, no other call runs the key. Other calls wait up to o.Terms.Wait and then fail with a
// *lockcore.BusyError. A run costs two round trips, a replay one.
//
// The end of fn decides what happens to the key. [Final], [NoEffect] and [Unknown] mark its error:
//
//	fn                                  AtLeastOnce              AtMostOnce
//	returns nil                         the result is recorded   the result is recorded
//	returns a result that is not kept   done without it          done without it
//	returns an error                    released                 the error is recorded
//	returns Final(err)                  the error is recorded    the error is recorded
//	returns NoEffect(err)               released                 released
//	returns Unknown(err)                abandoned                abandoned
//	panics, or calls runtime.Goexit     released                 abandoned
//	called Ticket                       transferred              transferred
//
// In this table:
//
//   - Recorded: for o.Keep calls return the result, or a *[RecordedError] with the text of the
//     error. If Redis does not reply within 1 s, the record is stored asynchronously, see
//     [lockcore.Lease.Complete].
//   - Done without it: later calls return ErrNoResult. A result is not kept if it exceeds
//     o.MaxResult. It is not kept either if it cannot be encoded, or if a replay would not return
//     it. Then this call returns the value with an error.
//   - Released: the next call runs. But a takeover abandons the key again, because the effect of the
//     earlier run is still unknown. So the next run is a takeover too.
//   - Abandoned: the next call takes the key over, or with AtMostOnce is refused.
//   - Transferred: nothing is recorded, and Outcome is Transferred, see [Ticket].
//   - A panic continues after that.
//
// Result.Outcome tells whether fn ran in this call, ran in this call after an abandoned run, or was
// replayed. It does not tell whether fn succeeded.
//
// Errors:
//
//   - With Outcome NotRun the error satisfies errors.Is(err, lockcore.ErrNotRun).
//   - If fn returned nil but the lease had ended before, the value is returned with the cause:
//     lockcore.ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp. The value is recorded
//     nevertheless, unless another run has begun.
//   - If fn returned context.Canceled or context.DeadlineExceeded after the lease ended, the error
//     wraps both the cause and fn's error.
//   - The record of a failure has the text of fn's own error, without the cause.
//
// A replay returns what o.Codec decodes. So the first result of each type is decoded and encoded
// again, and a difference is an error. With the default codec, JSON, the call fails before fn runs
// if T alone shows that a replay would differ: T is an interface with methods, or has a field that
// is unexported or has the tag json:"-". Export such a field, give its type MarshalJSON and
// UnmarshalJSON (methods of a pointer apply only behind a pointer or in a slice), return another
// type, or set o.Codec. If such a field is behind a pointer, which may be nil, T alone does not
// show it, so each result is searched for it. Mutexes are ignored. A value in an any comes back as
// a map, slice, string, float64 or bool.
//
// A crash between the effect of fn and its record leaves the key abandoned, and o.Mode decides what
// happens then. If that is not enough, pass the key on to the system that has the effect. Or record
// the effect in the same transaction, see package sqlonce.
func OnceValue[T any](ctx context.Context, locks *lockcore.Locker, key string, o OnceOptions, fn func(context.Context) (T, error)) (Result[T], error) {
	var res Result[T]
	if locks == nil || fn == nil {
		return res, errtext.Prefix("guard: OnceValue: locks and fn must not be nil", lockcore.ErrNotRun)
	}
	if !o.valid() {
		return res, errtext.Wrap(lockcore.ErrNotRun, o.Validate())
	}
	o.fill()
	o.nest(ctx)
	codec := o.Codec // so that the closure does not move all of o to the heap
	var stored replay[T]
	lease, rec, err := claimOrAdopt(ctx, locks, key, lockcore.Claim{
		Terms: o.Terms, Keep: o.Keep, Fingerprint: o.refused(), AtMostOnce: o.Mode == AtMostOnce,
		Check: func(b []byte) error { return stored.decode(codec, b) },
	})
	if err != nil {
		return res, err
	}
	if rec != nil {
		if differ(o.reported(), stored.fingerprint) { //planted:payload-differs
			access.Of(locks).Report(ctx, event.PayloadDiffers{Name: o.Terms.Name, Key: key})
		}
		return Result[T]{Value: stored.value, Outcome: Replayed, Attempt: rec.Attempt, NotKept: stored.notKept}, stored.err
	}
	// A done key is replayed, whatever its type.
	if err := roundtrip.Type[T](codec); err != nil { //planted:lossy-type-refused
		return res, errtext.Join(errtext.Wrap(lockcore.ErrNotRun, errtext.Prefix("guard: OnceValue", err)), giveBack(ctx, lease))
	}
	return run(ctx, locks, lease, o, fn)
}

// refused returns the fingerprint that Redis compares. reported returns the one in the record.
// Redis compares no fingerprint for a key that has none stored. So a call for a done key is not
// refused after a change of ReportOnly.
func (o *OnceOptions) refused() []byte {
	if o.ReportOnly {
		return nil
	}
	return o.Fingerprint
}

func (o *OnceOptions) reported() []byte {
	if o.ReportOnly {
		return o.Fingerprint
	}
	return nil
}

// differ reports whether both fingerprints are known and not equal.
func differ(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && !bytes.Equal(a, b) }

// run runs fn under lease, and ends the lease according to the result of fn.
func run[T any](ctx context.Context, locks *lockcore.Locker, lease *lockcore.Lease, o OnceOptions, fn func(context.Context) (T, error)) (res Result[T], err error) {
	res.Outcome, res.Attempt = Ran, lease.Attempt()
	if lease.Abandoned() {
		res.Outcome = TookOver
	}
	returned := false
	defer func() { _ = lease.Abandon(ctx) }() // has an effect only if the function below panics
	defer func() {
		var lost error
		failed := err // before end adds its own errors
		if !returned {
			failed = errNoReturn
		}
		lease.Failed(failed)
		if returned {
			var refused bool
			if !lease.Transferred() {
				err, refused = o.explainRefusal(err)
			}
			lost = endOrTransferred(ctx, lease, o, &res, &err)
			if refused { // after the record was stored, because an Observer may panic
				access.Of(locks).Report(ctx, event.Misconfigured{Problem: refusalRecorded})
			}
		} else {
			endPanicked(ctx, lease, o, &res)
		}
		err = because(lost, err)
	}()
	res.Value, err = fn(lease.Context())
	returned = true
	return res, err
}

// endPanicked ends a run whose fn panicked or called runtime.Goexit.
func endPanicked[T any](ctx context.Context, lease *lockcore.Lease, o OnceOptions, res *Result[T]) {
	p := access.PanickedOf(ctx)
	v, done := p.Value.(T)
	switch {
	case o.Mode == AtMostOnce, p.Abandon: // fn may have had its effect
		_ = lease.Abandon(ctx)
	case done:
		var err error
		res.Value = v
		_ = endOrTransferred(ctx, lease, o, res, &err)
	default:
		_ = giveBack(ctx, lease)
	}
}

// endOrTransferred calls end unless Ticket has ended the lease. Another goroutine of fn may call
// Ticket at the same time as end: the lease decides which of the two wins.
func endOrTransferred[T any](ctx context.Context, lease *lockcore.Lease, o OnceOptions, res *Result[T], err *error) (lost error) {
	if !lease.Transferred() {
		lost = end(ctx, lease, o, res, err)
	}
	if !lease.Transferred() {
		return lost
	}
	res.Outcome, res.NotKept = Transferred, false
	if *err == nil {
		return nil
	}
	return lockcore.ErrReleased // the cause with which Ticket canceled the ctx of fn
}

// end records the result, or releases or abandons the key. It returns why the lease ended early, or
// nil.
func end[T any](ctx context.Context, lease *lockcore.Lease, o OnceOptions, res *Result[T], err *error) error {
	rec := idempotency.Content{Ending: idempotency.Failed, Fingerprint: o.reported()}
	switch {
	case *err == nil:
		data, encErr := encode(o.Codec, res.Value)
		if encErr == nil && len(data) <= o.MaxResult {
			encErr = roundtrip.Value(o.Codec, res.Value, data)
		}
		switch {
		case encErr != nil:
			// fn has succeeded. Without a record it would run again.
			*err = errtext.Prefix(fmt.Sprintf("guard: encode result of %q", lease.Key()), encErr)
			rec.Ending, res.NotKept = idempotency.NotKept, true
		case len(data) > o.MaxResult:
			rec.Ending, res.NotKept = idempotency.NotKept, true
		default:
			rec.Ending, rec.Codec, rec.Data = idempotency.Done, o.Codec.Name(), data
		}
	case errors.As(*err, new(*unknownError)):
		return lease.Abandon(ctx)
	case errors.As(*err, new(*noEffectError)):
		return giveBack(ctx, lease)
	case errors.As(*err, new(*finalError)), o.Mode == AtMostOnce: //planted:failure-is-final
		rec.Data = []byte(clip((*err).Error()))
	default:
		return giveBack(ctx, lease)
	}
	b, encErr := rec.Encode()
	if encErr != nil { // the record is invalid: without any the work would run again
		*err = errtext.Join(*err, encErr)
		b, _ = idempotency.Content{Ending: idempotency.NotKept, Fingerprint: rec.Fingerprint}.Encode()
	}
	return lease.Complete(ctx, b, o.Keep)
}

// giveBack ends a run that had no result. After a takeover the effect of the earlier run is still
// unknown, so the key is abandoned again.
func giveBack(ctx context.Context, lease *lockcore.Lease) error {
	if lease.Abandoned() { //planted:takeover-stays
		return lease.Abandon(ctx)
	}
	return lease.Release(ctx)
}

// encode returns a panic of c as an error. fn has succeeded, and must not run again because of c.
func encode(c idempotency.Codec, v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec %q panicked: %v", c.Name(), p)
		}
	}()
	return c.Encode(v)
}

// replay is a decoded record.
type replay[T any] struct {
	value       T
	err         error
	notKept     bool
	fingerprint []byte
}

// decode fills r, which is zero. After an error r must not be used.
func (r *replay[T]) decode(c idempotency.Codec, b []byte) error {
	rec, err := idempotency.Decode(b)
	if err != nil {
		return err
	}
	r.fingerprint = rec.Fingerprint
	_, noValue := c.(nothing) // Once reads no value, so any codec may have written the record
	switch {
	case rec.Ending == idempotency.NotKept:
		r.notKept = true
		if !noValue {
			r.err = ErrNoResult
		}
	case rec.Ending == idempotency.Failed:
		r.err = &RecordedError{Text: string(rec.Data)}
	case !noValue:
		return rec.Value(c, &r.value)
	}
	return nil
}

// nothing is the codec of Once. It stores no value.
type nothing struct{}

func (nothing) Name() string               { return "none" }
func (nothing) Encode(any) ([]byte, error) { return nil, nil }
func (nothing) Decode([]byte, any) error   { return nil }
