package lockcore

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

// A call that did not run the handler satisfies errors.Is(err, ErrNotRun), whatever else it is.
var ErrNotRun = errors.New("lockcore: not run")

// Why a call did not run. Each also satisfies ErrNotRun.
var (
	// ErrBusy: another holder has the key, or it is reserved or parked. The error is a *BusyError, except that of Clear.
	ErrBusy = notRun("lockcore: busy")
	// ErrAbandoned: an earlier holder never said how its run ended, and the claim asked not to take over (AtMostOnce). The
	// error is an *AbandonedError.
	ErrAbandoned = notRun("lockcore: abandoned")
	// ErrMismatch: the key was used with another fingerprint. The error is a *MismatchError.
	ErrMismatch = notRun("lockcore: fingerprint mismatch")
	// ErrUnavailable: Redis did not answer in time, or answered that it cannot serve. What it said is wrapped too.
	ErrUnavailable = notRun("lockcore: redis unavailable")
	// ErrClosed: the Locker is closed, or was closed while the call waited.
	ErrClosed = notRun("lockcore: locker closed")
	// ErrKey: the key is empty or longer than 512 bytes. Any bytes will do.
	ErrKey = notRun("lockcore: bad key")
	// ErrRecord: the data in Redis is not what holdfast writes. There are three cases. The record of a done key does
	// not decode: it is never replayed, and nothing runs. A field of the key's hash cannot be read: the error names the
	// field, nothing is written to the hash, and Clear repairs the key. A Redis key has another type than hash or
	// sorted set: delete it.
	ErrRecord = notRun("lockcore: stored record does not decode")
	// ErrNested: a Once inside a Once of the same key would wait for itself.
	ErrNested = notRun("lockcore: nested claim of the same key")
)

// ErrChanged is what ClearSeen answers of a key that is no longer as it was seen.
var ErrChanged = errors.New("lockcore: key has changed since")

// Why a lease ended before its handler did. They are the context.Cause of the lease's ctx, and what Release answers.
var (
	// ErrLost: the lease ran out or was about to: Redis was away too long, the process was paused, or the key was
	// taken from it.
	ErrLost = errors.New("lockcore: lease lost")
	// ErrMaxHold: Terms.MaxHold is over.
	ErrMaxHold = errors.New("lockcore: max hold reached")
	// ErrStalled: the handler has not called Beat for Terms.Stall.
	ErrStalled = errors.New("lockcore: handler stalled")
	// ErrRevoked: an operator called Revoke.
	ErrRevoked = errors.New("lockcore: lease revoked")
	// ErrGivenUp: the time of Close was over while the handler ran.
	ErrGivenUp = errors.New("lockcore: lease given up by Close")
	// ErrReleased is the cause of a lease's ctx after its own Release.
	ErrReleased = errors.New("lockcore: lease released")
)

type notRunError struct{ text string }

func notRun(text string) error              { return &notRunError{text} }
func (e *notRunError) Error() string        { return e.text }
func (e *notRunError) Is(target error) bool { return target == ErrNotRun }

// Holder says who holds, or held, a key. A field that is not known is empty.
type Holder struct {
	Host        string
	PID         int
	Task        string // see WithTask
	Traceparent string // W3C trace context of the holder's span
}

func (h Holder) String() string {
	if h.Host == "" {
		return "unknown"
	}
	s := fmt.Sprintf("%s/%d", h.Host, h.PID)
	if h.Task != "" {
		s += fmt.Sprintf(" task %q", h.Task)
	}
	return s
}

// BusyError says that another holder has the key, who that is, for how long, and what is left of its lease; or that nobody has
// it but it is kept all the same, for what is left of Terms.MinHold or, for a moment, for who is next in line.
type BusyError struct {
	Key       string
	Holder    Holder        // empty if the key is only reserved or parked
	HeldFor   time.Duration // how long the holder has had it; 0 then
	Remaining time.Duration // what is left of the holder's lease, if it is not renewed, or of the reservation, or of MinHold
	Queue     int           // how long the line is: calls in line in this process plus, if another has the key, processes in line at Redis
	Waited    time.Duration // how long this call waited
	// Local says that the Locker of this call has the key itself, so the holder runs in this process. If the holder's
	// handler made the call, the call did not get that handler's ctx.
	Local bool
	// Nested says that ctx carries the hold, but another nested call of that hold runs, and this call did not get its
	// ctx.
	Nested bool
}

func (e *BusyError) Error() string {
	held := e.HeldFor.Round(time.Millisecond)
	switch {
	case e.Nested:
		return fmt.Sprintf("lockcore: %q is busy: held for %v by %v; held by a nested call of this hold: pass on the ctx of that call", e.Key, held, e.Holder)
	case e.Local:
		return fmt.Sprintf("lockcore: %q is busy: held for %v by %v; held by this process; a nested call needs the ctx of the handler that holds it", e.Key, held, e.Holder)
	}
	if e.kept() {
		return fmt.Sprintf("lockcore: %q is busy: its last run has ended, it is kept for another %v", e.Key, e.Remaining.Round(time.Millisecond))
	}
	return fmt.Sprintf("lockcore: %q is busy: held for %v by %v; if that has died it is free in %v", e.Key, held,
		e.Holder, e.Remaining.Round(time.Millisecond))
}

func (e *BusyError) kept() bool { return e.Holder == Holder{} && e.HeldFor == 0 }

// RetryAfter is when another try makes sense: as long as the holder has held the key so far, but no longer than what is
// left of its lease, or when the key is not kept any more; and always between 1 s, the least that a Retry-After header can
// say, and 1 min.
func (e *BusyError) RetryAfter() time.Duration {
	if e.kept() {
		return max(time.Second, min(e.Remaining, time.Minute))
	}
	return max(time.Second, min(e.HeldFor, e.Remaining, time.Minute))
}

// Is makes a BusyError match ErrBusy and ErrNotRun.
func (e *BusyError) Is(target error) bool { return target == ErrBusy || target == ErrNotRun }

// ErrorType names the class for telemetry.
func (e *BusyError) ErrorType() string { return "busy" }

// AbandonedError says that an earlier holder of the key never said how its run ended, so that its outcome is unknown.
type AbandonedError struct {
	Key     string
	Holder  Holder
	HeldFor time.Duration // since that run began
	Attempt int           // which run of the key that was, from 1
}

func (e *AbandonedError) Error() string {
	return fmt.Sprintf("lockcore: %q was abandoned: attempt %d was begun %v ago by %v and its outcome is unknown; Clear lets it run again",
		e.Key, e.Attempt, e.HeldFor.Round(time.Millisecond), e.Holder)
}

// Is makes an AbandonedError match ErrAbandoned and ErrNotRun.
func (e *AbandonedError) Is(target error) bool { return target == ErrAbandoned || target == ErrNotRun }

// ErrorType names the class for telemetry.
func (e *AbandonedError) ErrorType() string { return "abandoned" }

// MismatchError says that the key is done, running or abandoned with another fingerprint.
type MismatchError struct {
	Key  string
	Done bool // done, else running or abandoned
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

// dataError satisfies ErrRecord: the scripts did not write the data of the key. Redis is available, and a repeat gets
// the same reply.
type dataError struct {
	key   string // in Redis
	field string // of the hash; empty: one of the key's two Redis keys has another type
	reply error
}

func (e *dataError) Error() string {
	if e.field == "" {
		return fmt.Sprintf("lockcore: stored data does not decode: Redis key %q must be a hash and %q a sorted set; delete the one that is not: %v", e.key, e.key+":q", e.reply)
	}
	return fmt.Sprintf("lockcore: stored data does not decode: field %q of the hash %q must be a number from 0 to 9e15; Clear repairs the key", e.field, e.key)
}

func (e *dataError) Is(target error) bool { return target == ErrRecord || target == ErrNotRun }
func (e *dataError) Unwrap() error        { return e.reply }

// ErrorType names the class for telemetry.
func (e *dataError) ErrorType() string { return "bad_record" }

// unreadable returns a dataError if an error reply reports unreadable data. Some servers put text around the error of a
// script.
func unreadable(err error, list []any) error {
	var re redis.Error
	if !errors.As(err, &re) {
		return err
	}
	if _, text, ok := strings.Cut(re.Error(), "BADFIELD "); ok {
		field, _, _ := strings.Cut(text, " ")
		return &dataError{key: keyOf(list), field: field, reply: err}
	}
	if strings.Contains(re.Error(), "WRONGTYPE") {
		return &dataError{key: keyOf(list), reply: err}
	}
	return err
}

// unavailable wraps what Redis, or the way to it, said.
func unavailable(err error) error {
	if err == nil {
		return ErrUnavailable
	}
	if errors.As(err, new(*dataError)) {
		return err
	}
	return errtext.Wrap(ErrUnavailable, err)
}
