package tracing

import (
	"context"
	"errors"

	semconv "go.opentelemetry.io/otel/semconv/v1.40.0"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// outcome is the outcome of a call, the value of holdfast.outcome.
type outcome string

const (
	outcomeCompleted   outcome = "completed"
	outcomeTookOver    outcome = "took_over"
	outcomeFailed      outcome = "failed"
	outcomeReplayed    outcome = "replayed"
	outcomeAdmitted    outcome = "admitted"
	outcomeBusy        outcome = "busy"
	outcomeMismatch    outcome = "mismatch"
	outcomeCanceled    outcome = "canceled"
	outcomeAbandoned   outcome = "abandoned"
	outcomeUnavailable outcome = "unavailable"
	outcomeClosed      outcome = "closed"
	outcomeBadRecord   outcome = "bad_record"
	outcomeLost        outcome = "lost"
	outcomeUnknown     outcome = "unknown"
	outcomeTransferred outcome = "transferred"
	outcomeTicket      outcome = "bad_ticket"
	outcomeUnsupported outcome = "unsupported"
)

var (
	exclusiveOutcomes = []outcome{
		outcomeCompleted, outcomeTookOver, outcomeFailed, outcomeBusy, outcomeCanceled, outcomeUnavailable, outcomeClosed, outcomeLost,
		outcomeTransferred, outcomeTicket, outcomeUnsupported,
	}
	// throttledOutcomes are those of Throttle, which holds nothing.
	throttledOutcomes = []outcome{outcomeAdmitted, outcomeBusy, outcomeCanceled, outcomeUnavailable, outcomeClosed, outcomeUnsupported}
	// onceOutcomes are those of once keys, which have records and can be abandoned.
	onceOutcomes = append([]outcome{outcomeReplayed, outcomeMismatch, outcomeAbandoned, outcomeBadRecord, outcomeUnknown}, exclusiveOutcomes...)
)

// isError reports whether the span of the call has the status Error. A key that is busy, done or
// used with another payload is not an error.
func (o outcome) isError() bool {
	switch o {
	case outcomeFailed, outcomeAbandoned, outcomeUnavailable, outcomeClosed, outcomeBadRecord, outcomeLost, outcomeUnknown, outcomeUnsupported:
		return true
	case outcomeCompleted, outcomeTookOver, outcomeReplayed, outcomeAdmitted, outcomeBusy, outcomeMismatch, outcomeCanceled, outcomeTransferred, outcomeTicket:
	}
	return false
}

// outcomeOf returns the outcome of a refusal. An error may match several outcomes, such as busy and
// canceled. The first match counts.
func outcomeOf(err error) outcome {
	switch {
	case errors.Is(err, lockcore.ErrBusy):
		return outcomeBusy
	case errors.Is(err, lockcore.ErrMismatch):
		return outcomeMismatch
	case errors.Is(err, lockcore.ErrAbandoned):
		return outcomeAbandoned
	case errors.Is(err, lockcore.ErrClosed):
		return outcomeClosed
	case errors.Is(err, lockcore.ErrRecord):
		return outcomeBadRecord
	case errors.Is(err, lockcore.ErrUnsupported):
		return outcomeUnsupported
	case errors.Is(err, lockcore.ErrTicket), errors.Is(err, lockcore.ErrLost), errors.Is(err, lockcore.ErrRevoked): // only of Adopt
		return outcomeTicket
	case errors.Is(err, lockcore.ErrUnavailable) && !errors.Is(err, context.Canceled):
		return outcomeUnavailable // a caller that canceled during a command is not an outage
	}
	return outcomeCanceled
}

// outcomeOfRun returns the outcome of a call whose handler ran, and its error.type. A lost lease
// takes precedence over the handler's error, which is often only that of the canceled ctx.
func outcomeOfRun(e event.Released, tookOver bool) (o outcome, class string) {
	switch {
	case e.Transferred:
		return outcomeTransferred, ""
	case e.Lost != nil:
		return outcomeLost, errorType(e.Lost)
	case e.Abandoned && e.Failed == nil:
		return outcomeUnknown, string(outcomeUnknown)
	case e.Abandoned:
		return outcomeUnknown, errorType(e.Failed)
	case errors.Is(e.Failed, lockcore.ErrBusy) && !e.Completed: // of a guard inside: the handler has not failed
		return outcomeBusy, ""
	case e.Failed != nil:
		return outcomeFailed, errorType(e.Failed)
	case tookOver:
		return outcomeTookOver, ""
	}
	return outcomeCompleted, ""
}

// holderOf returns the holder that a refusal names, if it names one.
func holderOf(err error) event.Holder {
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		return busy.Holder
	}
	if abandoned, ok := errors.AsType[*lockcore.AbandonedError](err); ok {
		return abandoned.Holder
	}
	return event.Holder{}
}

// classes are the error types of this module. The first match counts, because an ErrRecord may wrap
// other errors.
var classes = []struct {
	err  error
	name string
}{
	{lockcore.ErrClosed, "closed"},
	{lockcore.ErrRecord, "bad_record"},
	{lockcore.ErrUnsupported, "unsupported"},
	{lockcore.ErrUnavailable, "unavailable"},
	{lockcore.ErrGivenUp, "given_up"},
	{lockcore.ErrMaxHold, "max_hold"},
	{lockcore.ErrStalled, "stalled"},
	{lockcore.ErrRevoked, "revoked"},
	{lockcore.ErrReplaced, "replaced"},
	{lockcore.ErrLost, "lost"},
	{lockcore.ErrTicket, "bad_ticket"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "timeout"},
}

// causes are the classes that Lost.Cause can have.
var causes = []string{"lost", "max_hold", "stalled", "revoked", "replaced", "given_up"}

// nameless are error types whose names have no information. The conventions use _OTHER for them.
var nameless = map[string]bool{
	"*errors.errorString": true, "*errors.joinError": true, "*fmt.wrapErrors": true, "*fmt.wrapError": true, "*errtext.joined": true,
}

// errorType returns the value of error.type for err. It is the result of its method ErrorType, a
// class of this module, the Go type at the end of its chain, or _OTHER. It is never the text of
// err, which may contain the key or a host name.
func errorType(err error) string {
	if err == nil {
		return semconv.ErrorTypeOther.Value.AsString()
	}
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) && typed.ErrorType() != "" {
		return typed.ErrorType()
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	if name := semconv.ErrorType(err).Value.AsString(); !nameless[name] {
		return name
	}
	return semconv.ErrorTypeOther.Value.AsString()
}
