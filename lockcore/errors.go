package lockcore

import (
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// ErrNotRun matches every error of a call that did not run its handler. Most of these errors also
// match one of the errors below.
var ErrNotRun = errors.New("lockcore: not run")

// Reasons why a call did not run. Each of these errors also matches ErrNotRun.
var (
	// ErrBusy: another holder has the key, or the key is reserved or cooling. The error is a
	// *BusyError, except that of Clear. If BusyError.Local or Nested is set, the holder runs in
	// this process. Then check that this call got the ctx of the innermost handler around it:
	// with another ctx it waits for its own caller.
	ErrBusy = notRun("lockcore: busy")
	// ErrAbandoned: an earlier run ended without an outcome, and the claim does not take over
	// (AtMostOnce). The error is an *AbandonedError.
	ErrAbandoned = notRun("lockcore: abandoned")
	// ErrMismatch: the key was used with another fingerprint. The error is a *MismatchError.
	ErrMismatch = notRun("lockcore: fingerprint mismatch")
	// ErrUnavailable: Redis did not reply in time, or replied that it cannot serve the command.
	// Terms.Wait says when. The error also wraps the error of the client.
	ErrUnavailable = notRun("lockcore: unavailable")
	// ErrClosed: the Locker is closed, or was closed while the call waited.
	ErrClosed = notRun("lockcore: locker closed")
	// ErrKey: the key is empty or longer than 512 bytes. It may contain any bytes.
	ErrKey = notRun("lockcore: bad key")
	// ErrRecord: the data in Redis is not what holdfast writes:
	//
	//   - The record of a done key does not decode. It is never replayed, and nothing runs.
	//   - A field of the key's hash cannot be read. The error names the field. Nothing is written
	//     to the hash. Clear repairs the key.
	//   - A Redis key of the key has another type, or is a string that holdfast did not write.
	//     Delete it.
	ErrRecord = notRun("lockcore: stored record does not decode")
	// ErrUpgrade: ctx holds a share of the key, and the call requests more than that share. It
	// requests the key alone, a share with a smaller Limit, or a greater Weight. Two such calls
	// would wait for each other. The text of the error names both shares.
	ErrUpgrade = notRun("lockcore: a nested call requests more than the share that its ctx holds")
	// ErrTicket: the text is not a ticket, or it is a ticket of a Locker with another prefix. The
	// text of the error says which.
	ErrTicket = notRun("lockcore: bad ticket")
	// ErrUnsupported: the servers of the Locker cannot do this, see NewQuorum, or one of them is not
	// suitable. The text of the error says what to use instead. No command was sent.
	ErrUnsupported = notRun("lockcore: unsupported")
	// ErrNested: the ctx of a Claim or Throttle has the same key, so the call would wait for itself. Or
	// Ticket was called for a hold with nested runs, which cannot be transferred.
	ErrNested = notRun("lockcore: nested call of the same key")
)

// ErrChanged is the error of RevokeIfUnchanged, ClearIfUnchanged and ForceClear if the key has changed
// since the Inspect whose result they received.
var ErrChanged = errors.New("lockcore: key has changed since")

// ErrAlive is the error of ForceClear if the holder renewed its lease while ForceClear waited, or does
// not renew it at all. The text of the error says which.
var ErrAlive = errors.New("lockcore: holder may be alive")

// Reasons why a lease ended before its handler. Each is the context.Cause of the ctx of the lease,
// and the error of its Release.
var (
	// ErrLost: the lease expired or was about to, or Redis no longer had it. Possible reasons:
	// Redis was unavailable for too long, the process was paused, or the data of the key was lost
	// or granted to another holder.
	ErrLost = errors.New("lockcore: lease lost")
	// ErrMaxHold: Terms.MaxHold is over.
	ErrMaxHold = errors.New("lockcore: max hold reached")
	// ErrStalled: the handler has not called Beat for Terms.Stall.
	ErrStalled = errors.New("lockcore: handler stalled")
	// ErrRevoked: an operator called Revoke.
	ErrRevoked = errors.New("lockcore: lease revoked")
	// ErrReplaced: a newer task or tick needs the key, and may end the hold of an older one.
	ErrReplaced = errors.New("lockcore: hold replaced by a newer one")
	// ErrGivenUp: Close stopped waiting for the handler.
	ErrGivenUp = errors.New("lockcore: lease given up by Close")
	// ErrReleased is the cause of the ctx of a lease that was released, and the error of later
	// calls on that lease.
	ErrReleased = errors.New("lockcore: lease released")
)

type notRunError struct{ text string }

func notRun(text string) error              { return &notRunError{text} }
func (e *notRunError) Error() string        { return e.text }
func (e *notRunError) Is(target error) bool { return target == ErrNotRun }

// BusyError reports that another holder has the key, or that the key is not held but kept:
//
//   - reserved for a moment, for the first process in the remote queue, or
//   - cooling for the rest of Terms.MinHold or of a pause.
type BusyError struct {
	Key string
	// Holder has the key.
	//
	//   - a cooling key: empty
	//   - a reserved key: the last holder, or empty if this process does not know it
	//   - a shared key: the holder of the share that was granted last; empty if the request was for
	//     a share, and the share that ends first is cooling
	Holder event.Holder
	// HeldFor is the time since the hold of a held key began, or since the first share of a shared
	// key. It is 0 if Holder is empty.
	HeldFor time.Duration
	// Remaining is the rest of the lease if it is not renewed, of the reservation, or of MinHold.
	// Of a shared key it is the time until its first share ends. If the request was for the key
	// alone, it is the time until the last share ends.
	Remaining time.Duration
	// PauseReason is the reason of a pause of the key, which ends after Remaining, or empty.
	PauseReason string
	// Exact is true if only the Rate keeps the call waiting. Then Remaining is the time until the
	// turn of this call.
	Exact bool
	// Queue is the number of calls in the local queue. If another process has the key, it includes
	// the processes in the remote queue.
	Queue  int
	Waited time.Duration // by this call
	// Shares is the sum of the weights of the shares of a shared key, including those that are
	// cooling. It is 0 if the holder has the key alone.
	Shares int
	// Waiting is the number of calls of this Locker that wait for the key, if MaxWaiting refused
	// this call. Otherwise it is 0.
	Waiting int
	// Local is true if the Locker of this call has the key itself, or the share that was granted
	// last. So the holder runs in this process. If the handler of that hold made this call, it did
	// not pass on its ctx.
	Local bool
	// Nested is true if ctx carries the hold, but another nested call of that hold runs. This call
	// did not get the ctx of that call.
	Nested bool
}

func (e *BusyError) Error() string {
	text := fmt.Sprintf("lockcore: %q is busy: %s", e.Key, e.text())
	if e.Waiting > 0 {
		return fmt.Sprintf("%s; not queued, because %d calls of this process wait for it (MaxWaiting)", text, e.Waiting)
	}
	if waited := e.Waited.Round(time.Millisecond); waited > 0 {
		text += fmt.Sprintf("; waited %v", waited)
	}
	return text
}

func (e *BusyError) text() string {
	held, left := e.HeldFor.Round(time.Millisecond), e.Remaining.Round(time.Millisecond)
	by := e.Holder.String()
	if e.Local && !e.Nested {
		by += ", another call of this process"
	}
	switch {
	case e.Nested:
		return fmt.Sprintf("held for %v by %v; held by a nested call of this hold", held, by)
	case e.PauseReason != "":
		return fmt.Sprintf("paused for another %v: %s", left, e.PauseReason)
	case e.Exact:
		return fmt.Sprintf("its rate is used up, the turn of this call is in %v", left)
	case e.kept() && e.Shares > 0:
		return fmt.Sprintf("shares of weight %d are held or cooling, the first one is free in %v", e.Shares, left)
	case e.kept():
		return fmt.Sprintf("its last run has ended, it is kept for another %v", left)
	case e.Shares > 0:
		return fmt.Sprintf("shares of weight %d are held, a lease that blocks this call ends in %v unless it is renewed; the last share was granted to %v", e.Shares, left, by)
	case e.Local:
		return fmt.Sprintf("held for %v by %v", held, by)
	}
	return fmt.Sprintf("held for %v by %v; if that has died it is free in %v", held, by, left)
}

func (e *BusyError) kept() bool { return e.Holder == event.Holder{} && e.HeldFor == 0 }

// RetryAfter returns how long to wait before another try, from 1 s to 1 min. 1 s is the least that
// a Retry-After header can express.
//
//   - The key is held or shared: HeldFor, but at most Remaining. So the longer a holder has the
//     key, the longer is the pause.
//   - The key is reserved or cooling, or Holder is empty because a share is cooling: Remaining.
//   - Exact or PauseReason is set: Remaining, rounded up to a second, up to 24 h.
func (e *BusyError) RetryAfter() time.Duration {
	if e.Exact || e.PauseReason != "" {
		return max(time.Second, min((e.Remaining+time.Second-1).Truncate(time.Second), 24*time.Hour))
	}
	if e.kept() {
		return max(time.Second, min(e.Remaining, time.Minute))
	}
	return max(time.Second, min(e.HeldFor, e.Remaining, time.Minute))
}

// Is makes a BusyError match ErrBusy and ErrNotRun.
func (e *BusyError) Is(target error) bool { return target == ErrBusy || target == ErrNotRun }

// ErrorType names the class for telemetry.
func (e *BusyError) ErrorType() string { return "busy" }

// AbandonedError reports that an earlier run of the key ended without an outcome.
type AbandonedError struct {
	Key     string
	Holder  event.Holder
	HeldFor time.Duration // since that run began
	Attempt int           // number of that run, from 1
}

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("lockcore: %q was abandoned: attempt %d was begun %v ago by %v and its outcome is unknown; Clear lets it run again",
		e.Key, e.Attempt, e.HeldFor.Round(time.Millisecond), e.Holder)
}

// Is makes an AbandonedError match ErrAbandoned and ErrNotRun.
func (e *AbandonedError) Is(target error) bool { return target == ErrAbandoned || target == ErrNotRun }

// ErrorType names the class for telemetry.
func (e *AbandonedError) ErrorType() string { return "abandoned" }

// MismatchError reports that the key is done, held or abandoned with another fingerprint.
type MismatchError struct {
	Key  string
	Done bool // false: held or abandoned
}

func (e *MismatchError) Error() string {
	state := "running or abandoned"
	if e.Done {
		state = "done"
	}
	return fmt.Sprintf("lockcore: %q is %s with another fingerprint", e.Key, state)
}

// Is makes a MismatchError match ErrMismatch and ErrNotRun.
func (e *MismatchError) Is(target error) bool { return target == ErrMismatch || target == ErrNotRun }

// ErrorType names the class for telemetry.
func (e *MismatchError) ErrorType() string { return "mismatch" }

// dataError satisfies ErrRecord: holdfast did not write the data of the key. The backend is
// available, and a repeat gets the same reply.
type dataError struct{ *backend.DataError }

func (e *dataError) Error() string        { return "lockcore: " + e.DataError.Error() }
func (e *dataError) Is(target error) bool { return target == ErrRecord || target == ErrNotRun }
func (e *dataError) Unwrap() error        { return e.Reply }

// ErrorType names the class for telemetry.
func (e *dataError) ErrorType() string { return "bad_record" }

// unsupportedError satisfies ErrUnsupported.
type unsupportedError struct{ error }

func (e *unsupportedError) Is(target error) bool {
	return target == ErrUnsupported || target == ErrNotRun
}
func (e *unsupportedError) Unwrap() error { return e.error }

// ErrorType names the class for telemetry.
func (e *unsupportedError) ErrorType() string { return "unsupported" }

// translate returns an error of the backend as an error of this package.
func translate(err error) error {
	if e, ok := errors.AsType[*backend.DataError](err); ok {
		return &dataError{e}
	}
	if e, ok := errors.AsType[*backend.AcksError](err); ok {
		return &replicaAcksError{Acked: e.Acked, Wanted: e.Wanted, Reason: e.Reason}
	}
	switch {
	case errors.Is(err, backend.ErrUnsupported):
		return &unsupportedError{err}
	case errors.Is(err, backend.ErrClosed):
		return ErrClosed
	case errors.Is(err, backend.ErrTooLate):
		return errtext.Wrap(ErrUnavailable, err)
	}
	return err
}

// unavailable wraps an error of the backend in ErrUnavailable. It does not wrap a dataError or an
// unsupportedError, which come from an available backend.
func unavailable(err error) error {
	if err == nil {
		return ErrUnavailable
	}
	err = translate(err)
	if errors.As(err, new(*dataError)) || errors.As(err, new(*unsupportedError)) {
		return err
	}
	return errtext.Wrap(ErrUnavailable, err)
}
