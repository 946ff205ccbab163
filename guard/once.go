package guard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	defaultKeep  = 24 * time.Hour
	maxKeep      = 366 * 24 * time.Hour
	maxMaxResult = 32 << 20
)

// Mode says what becomes of a key whose run began and never said how it ended: the process died, its lease was lost, it panicked under
// AtMostOnce, or it said Unknown.
type Mode int

const (
	// AtLeastOnce takes an abandoned key over: the work is tried again, and its effect may happen twice.
	AtLeastOnce Mode = iota
	// AtMostOnce refuses an abandoned key with a *lockcore.AbandonedError until an operator clears it
	// (holdfast clear -once, or idempotency.Clear), or until Keep, at least 24 h, is over; then the key is forgotten
	// and runs again. A failed run is recorded and replayed, unless the error is marked with NoEffect or Unknown.
	AtMostOnce
)

// Outcome says what a call of Once came to.
type Outcome int

// The outcomes of a call.
const (
	NotRun     Outcome = iota // the error says why
	Ran                       // fn ran here
	TookOver                  // fn ran here, after a holder that never said how its run ended
	Replayed                  // fn did not run; what was recorded is returned
	HandedOver                // fn ran here and called Ticket; nothing is recorded
)

func (o Outcome) String() string {
	switch o {
	case Ran:
		return "ran"
	case TookOver:
		return "took over"
	case Replayed:
		return "replayed"
	case HandedOver:
		return "handed over"
	default:
		return "not run"
	}
}

// OnceOptions are the conditions of a Once. The zero value is safe: at least once, remembered for 24 h.
type OnceOptions struct {
	// Terms of each run; Wait is how long to wait for another one.
	Terms lockcore.Terms
	// Keep is how long the record is remembered, and an abandoned run (at least 24 h). Default 24 h. 1 s to 366 days. It
	// must be longer than the time within which the producer may deliver the same job again.
	Keep time.Duration
	// Mode is AtLeastOnce by default.
	Mode Mode
	// Fingerprint stands for the payload, at most 64 bytes, see [idempotency.Fingerprint]. The same key with another
	// fingerprint is refused with a *lockcore.MismatchError. Empty: not compared.
	Fingerprint []byte
	// ReportOnly replays a done key whose fingerprint differs, and the Observer gets PayloadDiffers.
	// The fingerprint is part of the record, so a running or abandoned key is not compared. A record
	// is compared only if it, too, was made with ReportOnly. Default: a call with another fingerprint
	// is refused.
	ReportOnly bool
	// Codec encodes the result of OnceValue. Default: [idempotency.JSON].
	Codec idempotency.Codec
	// MaxResult bounds the encoded result in bytes. Default 256 KiB, at most 32 MiB. A larger one leaves a tombstone: the
	// key is done and never runs again, but a replay answers ErrNoResult.
	MaxResult int
}

// Validate reports every problem of o at once; each names the field, its value and the bound.
func (o OnceOptions) Validate() error {
	var errs []error
	if err := o.Terms.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.Terms.Limit != 0 || o.Terms.Weight != 0 {
		errs = append(errs, fmt.Errorf("guard: OnceOptions: Terms.Limit is %d and Terms.Weight is %d, must be 0", o.Terms.Limit, o.Terms.Weight))
	}
	if o.Keep != 0 && (o.Keep < time.Second || o.Keep > maxKeep) {
		errs = append(errs, fmt.Errorf("guard: OnceOptions.Keep is %v, must be between 1s and %v", o.Keep, maxKeep))
	}
	if o.Mode != AtLeastOnce && o.Mode != AtMostOnce {
		errs = append(errs, fmt.Errorf("guard: OnceOptions.Mode is %d, must be AtLeastOnce or AtMostOnce", o.Mode))
	}
	if len(o.Fingerprint) > lockcore.MaxFingerprint {
		errs = append(errs, fmt.Errorf("guard: OnceOptions.Fingerprint is %d bytes long, must be at most %d", len(o.Fingerprint), lockcore.MaxFingerprint))
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

// checkCodec refuses a codec with whose name no record can be stored: the result of a run would be
// lost.
func checkCodec(c idempotency.Codec) error {
	return idempotency.Content{Ending: idempotency.Done, Codec: c.Name()}.Validate()
}

// valid reports whether Validate accepts o except for Terms, which lockcore.Locker.Claim checks. It is
// part of each call, also with options that a middleware has validated, so it does not allocate.
func (o *OnceOptions) valid() bool {
	return (o.Mode == AtLeastOnce || o.Mode == AtMostOnce) &&
		(o.Keep == 0 || o.Keep >= time.Second && o.Keep <= maxKeep) &&
		len(o.Fingerprint) <= lockcore.MaxFingerprint &&
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

// Result is what OnceValue returns.
type Result[T any] struct {
	Value   T
	Outcome Outcome
	Attempt int // which run of the key this is, or was, from 1
	// Tombstone: the key is done, but its result was too large to keep or did not encode. Value is zero if Outcome is Replayed.
	Tombstone bool
}

// Once runs fn unless the key is done: after fn has returned nil, and that is recorded, no Once of the same key runs
// within o.Keep. It is [OnceValue] without a value.
func Once(ctx context.Context, locks *lockcore.Locker, key string, o OnceOptions, fn func(context.Context) error) (Outcome, error) {
	if locks == nil || fn == nil {
		return NotRun, errtext.Prefix("guard: Once: locks and fn must not be nil", lockcore.ErrNotRun)
	}
	o.Codec = nothing{}
	r, err := OnceValue(ctx, locks, key, o, func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) })
	return r.Outcome, err
}

// OnceValue runs fn unless the key is done, and returns what fn returned or what was recorded. While fn runs nobody else
// runs the key: others wait o.Terms.Wait and are then refused with a *lockcore.BusyError. It costs two round trips, a
// replay one.
//
//	fn returns nil         recorded, replayed for o.Keep; without a reply from Redis within 1 s that goes on in the background
//	an error               the key is freed and the next call runs; with AtMostOnce it is recorded
//	a result too large     recorded as a tombstone; later calls get ErrNoResult
//	one that cannot be     recorded as a tombstone; the value comes with the encoder's error, later calls get ErrNoResult
//	encoded
//	Final(err)             recorded: a later call gets an error with the same text, a *RecordedError
//	NoEffect(err)          the key is freed, also with AtMostOnce; if it took over, the next run is told so too
//	Unknown(err)           the key is left abandoned: taken over, or with AtMostOnce refused
//	fn called Ticket       nothing is recorded; Outcome is HandedOver
//	panics                 the key is freed and the panic passes on; with AtMostOnce it is left abandoned
//
// Outcome says whether fn ran here, ran here after an abandoned run, or was replayed; not how it ended. An error with
// Outcome NotRun satisfies errors.Is(err, lockcore.ErrNotRun). If fn returned nil but the lease ended before, the value comes with the
// cause (lockcore.ErrLost, ErrMaxHold, ErrStalled, ErrRevoked, ErrGivenUp);
// it was recorded all the same unless another run had begun. If fn returned context.Canceled or
// context.DeadlineExceeded after the lease ended, the error wraps both the cause and fn's error. The record of a
// failure has the text of fn's own error.
//
// A crash between the effect of fn and its record cannot be closed from outside: Mode chooses what happens then. Pass
// the key downstream, or record the effect in the same transaction, where that is not enough.
func OnceValue[T any](ctx context.Context, locks *lockcore.Locker, key string, o OnceOptions, fn func(context.Context) (T, error)) (Result[T], error) {
	var res Result[T]
	if locks == nil || fn == nil {
		return res, errtext.Prefix("guard: OnceValue: locks and fn must not be nil", lockcore.ErrNotRun)
	}
	if !o.valid() {
		return res, errtext.Wrap(lockcore.ErrNotRun, o.Validate())
	}
	o.fill()
	codec := o.Codec // so that the closure does not move all of o to the heap
	var stored replay[T]
	lease, rec, err := claim(ctx, locks, key, lockcore.Claim{
		Terms: o.Terms, Keep: o.Keep, Fingerprint: o.refused(), AtMostOnce: o.Mode == AtMostOnce,
		Check: func(b []byte) error { return stored.decode(codec, b) },
	})
	if err != nil {
		return res, err
	}
	if rec != nil {
		if differ(o.reported(), stored.fingerprint) { //planted:payload-differs
			locks.Internal().Report(ctx, PayloadDiffers{Name: o.Terms.Name, Key: key})
		}
		return Result[T]{Value: stored.value, Outcome: Replayed, Attempt: rec.Attempt, Tombstone: stored.tombstone}, stored.err
	}
	return run(ctx, lease, o, fn)
}

// refused returns the fingerprint that Redis compares, and reported the one in the record. They are separate fields
// because a switch from one to the other must not refuse done keys: without a stored fingerprint Redis does not
// compare.
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

// run runs fn under lease and ends the lease by what fn came to. The deferred call is the only place that ends it.
func run[T any](ctx context.Context, lease *lockcore.Lease, o OnceOptions, fn func(context.Context) (T, error)) (res Result[T], err error) {
	res.Outcome, res.Attempt = Ran, lease.Attempt()
	if lease.Abandoned() {
		res.Outcome = TookOver
	}
	returned := false
	defer func() { _ = lease.Abandon(ctx) }() // if ending it panics too; else it has ended
	defer func() {
		var lost error
		failed := err // before end adds its own errors
		if !returned {
			failed = errNoReturn
		}
		lease.Failed(failed)
		if returned {
			lost = endOrHandedOver(ctx, lease, o, &res, &err)
		} else if o.Mode == AtMostOnce { // a panic, or runtime.Goexit: nobody knows how far fn came
			_ = lease.Abandon(ctx)
		} else {
			_ = lease.Release(ctx)
		}
		err = because(lost, err)
	}()
	res.Value, err = fn(lease.Context())
	returned = true
	return res, err
}

// endOrHandedOver is end unless Ticket has ended the lease. Another goroutine of fn may call Ticket at
// the same time as end: the lease decides which of the two wins.
func endOrHandedOver[T any](ctx context.Context, lease *lockcore.Lease, o OnceOptions, res *Result[T], err *error) (lost error) {
	if !lease.HandedOver() {
		lost = end(ctx, lease, o, res, err)
	}
	if !lease.HandedOver() {
		return lost
	}
	res.Outcome, res.Tombstone = HandedOver, false
	if *err == nil {
		return nil
	}
	return lockcore.ErrReleased // why the ctx of fn has ended
}

// end records or frees, and returns why the lease ended early, if it did.
func end[T any](ctx context.Context, lease *lockcore.Lease, o OnceOptions, res *Result[T], err *error) error {
	rec := idempotency.Content{Ending: idempotency.Failed, Fingerprint: o.reported()}
	switch {
	case *err == nil:
		data, encErr := encode(o.Codec, res.Value)
		switch {
		case encErr != nil:
			// fn has done its work: running it again for a result that cannot be encoded would do it twice.
			*err = errtext.Prefix(fmt.Sprintf("guard: encode result of %q", lease.Key()), encErr)
			rec.Ending, res.Tombstone = idempotency.Tombstone, true
		case len(data) > o.MaxResult:
			rec.Ending, res.Tombstone = idempotency.Tombstone, true
		default:
			rec.Ending, rec.Codec, rec.Data = idempotency.Done, o.Codec.Name(), data
		}
	case errors.As(*err, new(*unknownError)), errors.As(*err, new(*noEffectError)) && lease.Abandoned():
		return lease.Abandon(ctx) // the second: what the run before it did is as unknown as it was
	case errors.As(*err, new(*noEffectError)):
		return lease.Release(ctx)
	case errors.As(*err, new(*finalError)), o.Mode == AtMostOnce: //planted:failure-is-final
		rec.Data = []byte(clip((*err).Error()))
	default:
		return lease.Release(ctx)
	}
	b, encErr := rec.Encode()
	if encErr != nil { // a codec with a name that is too long: a tombstone still says that the work is done
		*err = errtext.Join(*err, encErr)
		b, _ = idempotency.Content{Ending: idempotency.Tombstone, Fingerprint: rec.Fingerprint}.Encode()
	}
	return lease.Complete(ctx, b, o.Keep)
}

// encode makes an error of a codec that panics: fn has done its work, which must not be done again for that.
func encode(c idempotency.Codec, v any) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("codec %q panicked: %v", c.Name(), p)
		}
	}()
	return c.Encode(v)
}

// replay is a record as a caller sees it.
type replay[T any] struct {
	value       T
	err         error
	tombstone   bool
	fingerprint []byte
}

// decode fills r, which is zero. After an error r must not be used.
func (r *replay[T]) decode(c idempotency.Codec, b []byte) error {
	rec, err := idempotency.Decode(b)
	if err != nil {
		return err
	}
	r.fingerprint = rec.Fingerprint
	_, whether := c.(nothing) // Once asks only whether, whatever codec wrote it
	switch {
	case rec.Ending == idempotency.Tombstone:
		r.tombstone = true
		if !whether {
			r.err = ErrNoResult
		}
	case rec.Ending == idempotency.Failed:
		r.err = &RecordedError{Text: string(rec.Data)}
	case !whether:
		return rec.Value(c, &r.value)
	}
	return nil
}

// nothing is the codec of Once: a record without a value.
type nothing struct{}

func (nothing) Name() string               { return "none" }
func (nothing) Encode(any) ([]byte, error) { return nil, nil }
func (nothing) Decode([]byte, any) error   { return nil }
