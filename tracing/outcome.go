package tracing

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/lockcore"
)

// outcome is what a call came to, in the words of package guard.
type outcome string

const (
	outcomeRan         outcome = "ran"
	outcomeTookOver    outcome = "took over"
	outcomeReplayed    outcome = "replayed"
	outcomeBusy        outcome = "busy"
	outcomeMismatch    outcome = "mismatch"
	outcomeCanceled    outcome = "canceled"
	outcomeAbandoned   outcome = "abandoned"
	outcomeUnavailable outcome = "unavailable"
	outcomeClosed      outcome = "closed"
	outcomeBadRecord   outcome = "bad record"
	outcomeLost        outcome = "lost"
	outcomeUnknown     outcome = "unknown"
)

// isError says that somebody should look at it. That a key is busy, done or used otherwise is what keys are for.
func (o outcome) isError() bool {
	switch o {
	case outcomeAbandoned, outcomeUnavailable, outcomeClosed, outcomeBadRecord, outcomeLost, outcomeUnknown:
		return true
	case outcomeRan, outcomeTookOver, outcomeReplayed, outcomeBusy, outcomeMismatch, outcomeCanceled:
	}
	return false
}

// outcomeOf is what a refusal means. An error may say several things: busy, and that the caller's ctx ended meanwhile.
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
	case errors.Is(err, lockcore.ErrUnavailable) && !errors.Is(err, context.Canceled):
		return outcomeUnavailable // a caller who left while a command was under way is no outage
	}
	return outcomeCanceled
}

// holderOf is whom a refusal names, if anybody.
func holderOf(err error) lockcore.Holder {
	var busy *lockcore.BusyError
	var abandoned *lockcore.AbandonedError
	switch {
	case errors.As(err, &busy):
		return busy.Holder
	case errors.As(err, &abandoned):
		return abandoned.Holder
	}
	return lockcore.Holder{}
}

var classes = []struct {
	err  error
	name string
}{
	{lockcore.ErrClosed, "closed"},
	{lockcore.ErrRecord, "bad_record"},
	{lockcore.ErrUnavailable, "unavailable"},
	{lockcore.ErrGivenUp, "given_up"},
	{lockcore.ErrMaxHold, "max_hold"},
	{lockcore.ErrStalled, "stalled"},
	{lockcore.ErrRevoked, "revoked"},
	{lockcore.ErrLost, "lost"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "timeout"},
}

// errorType is the class of err: what it says of itself, ours, or the Go type at the end of its chain. Never its text.
func errorType(err error) string {
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
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
	return fmt.Sprintf("%T", err)
}
