package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ConflictPolicy says what happens to a task whose key is still busy at the end of the wait.
//
//	RetryLater   a *lockcore.BusyError; the task comes back later and, with Configure, no retry is used up; with
//	             [Parking] it is parked
//	Skip         nil; the task ends as if it had run, completed if it has a retention
//	Drop         an error that wraps asynq.RevokeTask; the task is deleted, whatever its retention
//	Fail         an error; a retry is used up, and after the last the task is archived
//
// The wait is Terms.Wait, inside the worker's process, whose calls are served in order. It always ends some time before the task's deadline (1 s, or a
// quarter of the time left if that is less), for asynq counts every task that meets its deadline as failed. On the last
// attempt asynq archives a task before it asks whether the error was a failure; so RetryLater waits then up to that
// point, whatever Terms.Wait says, and if the key is still busy the task is archived with an error that says who holds
// it. The Observer hears guard.ConflictLost, and the user's ErrorHandler is called.
type ConflictPolicy int

// The policies.
const (
	RetryLater ConflictPolicy = iota
	Skip
	Drop
	Fail
)

func (b ConflictPolicy) validate(field string) error {
	if b < RetryLater || b > Fail {
		return fmt.Errorf("asynqmw: %s is %d, must be RetryLater, Skip, Drop or Fail", field, int(b))
	}
	return nil
}

func (b ConflictPolicy) String() string {
	switch b {
	case RetryLater:
		return "RetryLater"
	case Skip:
		return "Skip"
	case Drop:
		return "Drop"
	case Fail:
		return "Fail"
	default:
		return "ConflictPolicy(" + strconv.Itoa(int(b)) + ")"
	}
}

// withoutConfigure says what goes wrong on a server that Configure has not seen, or nothing.
func (b ConflictPolicy) withoutConfigure() string {
	switch b {
	case RetryLater:
		return "each conflict uses up a retry"
	case Drop:
		return "ErrorHandler is called for each task that is dropped"
	default:
		return ""
	}
}

// conflict is a busy key as asynq gets to see it.
type conflict struct {
	err  error // has a *lockcore.BusyError in its chain
	busy ConflictPolicy
	last bool // the last attempt
	bare bool // the server does not run under Configure

	place *place // nil: the task is not parked
}

func (c *conflict) Error() string {
	switch {
	case c.place != nil:
		return c.parkedText()
	case c.bare && c.busy == RetryLater:
		return "asynqmw: a conflict that uses up a retry, for asynqmw.Configure was not used: " + c.err.Error()
	case c.busy == Drop:
		return "asynqmw: task dropped: " + c.err.Error()
	case c.last:
		return "asynqmw: last attempt lost to a conflict: " + c.err.Error()
	default:
		return c.err.Error()
	}
}

func (c *conflict) Unwrap() []error {
	if c.busy == Drop {
		return []error{c.err, asynq.RevokeTask}
	}
	return []error{c.err}
}

// ErrorType names the class for telemetry.
func (c *conflict) ErrorType() string { return "busy" }

// IsFailure says whether asynq will count it as one, for telemetry too: a conflict that is tried again or was dropped by
// choice is none.
func (c *conflict) IsFailure() bool {
	return c.busy == Fail || c.last || c.bare && c.busy == RetryLater
}

// busyIn returns the busy key that err stands for, unless that was to count as a failure. Errors of a guard that the
// handler used itself count too.
func busyIn(err error) (*lockcore.BusyError, bool) {
	var c *conflict
	if errors.As(err, &c) && c.busy == Fail {
		return nil, false
	}
	var b *lockcore.BusyError
	return b, errors.As(err, &b)
}

// refused turns the error of a guard that did not run the handler into what asynq is told. The mark of NoEffect is for a
// Once around this one: it must not record that its handler has failed.
func (d *decorator) refused(ctx context.Context, name string, at *place, err error) error {
	var b *lockcore.BusyError
	if !errors.As(err, &b) {
		return guard.NoEffect(err)
	}
	if d.busy == Skip {
		return nil
	}
	c := &conflict{err: err, busy: d.busy, place: at, last: d.busy != Drop && lastAttempt(ctx), bare: !configured(ctx)}
	// A ctx that was canceled is a shutdown, which uses up nothing, or an operator who knows.
	if c.last && !errors.Is(ctx.Err(), context.Canceled) {
		d.locks.Internal().Report(ctx, guard.ConflictLost{Name: name, Holder: b.Holder})
	}
	return guard.NoEffect(c) //planted:conflict-has-no-effect
}

const (
	maxWait   = 24 * time.Hour // the most that lockcore allows a wait that is not Forever
	maxMargin = time.Second    // what is left of the task's time after a wait
)

// wait is how long this delivery stands in line.
func (d *decorator) wait(ctx context.Context) time.Duration {
	wait := d.terms.Wait
	if wait == 0 {
		wait = d.locks.Terms().Wait
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return wait
	}
	left := time.Until(deadline)
	most := min(max(left-min(maxMargin, left/4), 1), maxWait)
	if d.busy == RetryLater && lastAttempt(ctx) {
		return most
	}
	return min(wait, most) // NoWait is less than any
}

// lastAttempt says that asynq will archive the task if it gets an error now.
func lastAttempt(ctx context.Context) bool {
	retried, ok := asynq.GetRetryCount(ctx)
	limit, _ := asynq.GetMaxRetry(ctx)
	return ok && retried >= limit
}
