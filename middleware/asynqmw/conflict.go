package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/hibiken/asynq"

	"github.com/holdfast-go/holdfast/internal/parking"
	"github.com/holdfast-go/holdfast/lockcore"
)

// ConflictPolicy decides what happens to a task whose key is still busy at the end of the wait. The
// zero value is RetryLater.
//
//   - [RetryLater]: asynq gets a *lockcore.BusyError. The task comes back later, with [Parking] as
//     a parked task. With [Configure] it uses up no retry.
//   - [Skip]: asynq gets nil. The task ends as if it had run: completed if it has a retention. Do
//     not put a middleware with Skip inside a [Once], which would record the skipped run as done.
//   - [Drop]: asynq gets an error that wraps asynq.RevokeTask. The task is deleted, even if it has
//     a retention.
//   - [Fail]: asynq gets an error that uses up a retry. After the last attempt the task is
//     archived.
//
// The wait is Terms.Wait, in the process of the worker, whose calls are served in order. The wait
// always ends before the task's deadline, because asynq counts every task that reaches its deadline
// as failed. It ends 1 s before the deadline, or a quarter of the remaining time before it if that
// is less.
//
// A [Once] inside a hold of another key, such as an Exclusive's, does not wait unless Terms.Wait
// is set, and gives that key back.
//
// On the last attempt asynq archives the task on any error other than asynq.RevokeTask, even on one
// that is not a failure. So on this attempt RetryLater waits up to that end, and ignores
// Terms.Wait. A Once inside a hold of another key waits for Terms.Lease, or for Terms.Wait if that
// is longer, but not beyond that end. If the key is still busy, the task is archived with an error
// that names the holder. The Observer gets event.ConflictLost, and the user's ErrorHandler is called.
type ConflictPolicy int

// The policies, see [ConflictPolicy].
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

// withoutConfigure returns what goes wrong under b on a server without Configure, or "".
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

// conflict is the error that asynq gets for a busy key.
type conflict struct {
	err  error // has a *lockcore.BusyError in its chain
	busy ConflictPolicy
	last bool // the last attempt
	bare bool // Configure was not used for the server

	place *parking.Place // nil: the task is not parked
}

func (c *conflict) Error() string {
	switch {
	case c.place != nil:
		return c.place.Text
	case c.bare && c.busy == RetryLater:
		return "asynqmw: a conflict uses up a retry, because asynqmw.Configure was not used: " + c.err.Error()
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

// ErrorType returns the class of the error for telemetry.
func (c *conflict) ErrorType() string { return "busy" }

// IsFailure reports whether asynq counts the conflict as a failure. Telemetry uses it too. A
// conflict after which the task is tried again or dropped is not a failure.
func (c *conflict) IsFailure() bool {
	return c.busy == Fail || c.last || c.bare && c.busy == RetryLater
}

// busyIn returns the *lockcore.BusyError in err, but not if it is a failure (Fail). The
// error may also come from a guard that the handler called itself.
func busyIn(err error) (*lockcore.BusyError, bool) {
	var c *conflict
	if errors.As(err, &c) && c.busy == Fail {
		return nil, false
	}
	var b *lockcore.BusyError
	return b, errors.As(err, &b)
}

// lastAttempt reports whether asynq archives the task if it gets an error now.
func lastAttempt(ctx context.Context) bool {
	retried, ok := asynq.GetRetryCount(ctx)
	limit, _ := asynq.GetMaxRetry(ctx)
	return ok && retried >= limit
}
