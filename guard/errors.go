package guard

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

// Final marks an error as final: Once records it. Later calls do not run fn, and return a
// [RecordedError] with the same text, cut to 4 KiB. Final(nil) is nil.
func Final(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// NoEffect marks an error of a run that had no effect: Once releases the key, even with AtMostOnce.
// After a takeover it abandons the key again. NoEffect(nil) is nil.
func NoEffect(err error) error {
	if err == nil {
		return nil
	}
	return &noEffectError{err}
}

// Unknown marks an error after which the effect of the run is unknown, such as a timeout of a
// payment provider. Once leaves the key abandoned, as if the process had died. The next call takes
// it over, and its Outcome is TookOver. With AtMostOnce the next call is refused. Unknown(nil) is
// nil.
func Unknown(err error) error {
	if err == nil {
		return nil
	}
	return &unknownError{err}
}

// because returns the error of a run. lost is the reason why the lease of the run ended early, or
// nil. err is the error that the function of the run returned. The error of a ctx does not say why
// the ctx ended. So because adds lost to such an error. errors.Is and errors.As still find the
// marks on err and the errors that it wraps.
func because(lost, err error) error {
	switch {
	case lost == nil:
		return err
	case err == nil:
		return lost
	case (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && !errors.Is(err, lost):
		return errtext.Wrap(lost, err)
	}
	return err
}

type unknownError struct{ error }

func (e *unknownError) Unwrap() error { return e.error }

type finalError struct{ error }

func (e *finalError) Unwrap() error { return e.error }

type noEffectError struct{ error }

func (e *noEffectError) Unwrap() error { return e.error }

// ErrNoResult is the error of OnceValue, with Outcome Replayed, if the key is done but its result
// was not stored. The result was too large or could not be encoded. fn does not run.
var ErrNoResult = errors.New("guard: done, but its result was not kept")

// RecordedError is the recorded error of an earlier run of the key, its text cut to 4 KiB.
type RecordedError struct{ Text string }

func (e *RecordedError) Error() string { return e.Text }

// ErrorType names the class for telemetry.
func (e *RecordedError) ErrorType() string { return "recorded" }

const maxErrorText = 4 << 10

// clip cuts the text of an error to maxErrorText, between two characters.
func clip(s string) string {
	if len(s) <= maxErrorText {
		return s
	}
	n := maxErrorText
	for n > maxErrorText-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
