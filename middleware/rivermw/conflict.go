package rivermw

import (
	"fmt"
	"strconv"
	"time"

	"github.com/riverqueue/river"
)

// ConflictPolicy decides what happens to a job whose key is still busy at the end of the wait. The
// zero value is RetryLater.
//
//   - [RetryLater]: River snoozes the job, which uses up no attempt. With [Wake] it is parked.
//   - [Skip]: River gets nil, and the job ends as if it had run. Do not put a middleware with Skip
//     inside a [Once], which would record the skipped run as done.
//   - [Cancel]: River cancels the job.
//   - [Fail]: River gets the *lockcore.BusyError, which uses up an attempt.
//
// The wait is Terms.Wait, in the worker. A [Once] inside a hold of another key, such as an
// Exclusive's, does not wait unless Terms.Wait is set. If River ends the ctx of the job during the
// wait, the job is snoozed under each policy.
//
// The timeout of the job begins when the handler begins, so the wait does not use it up. But River
// rescues each job that it gave to a worker RescueStuckJobsAfter ago (1 h): it gives that job to
// another worker. So the waits of a job are together no longer than half of that time, or than 30 min without
// [Wake]. If the process was paused for so long, the handler does not run, and River stores nothing
// for this run.
type ConflictPolicy int

// The policies, see [ConflictPolicy].
const (
	RetryLater ConflictPolicy = iota
	Skip
	Cancel
	Fail
)

func (b ConflictPolicy) validate(field string) error {
	if b < RetryLater || b > Fail {
		return fmt.Errorf("rivermw: %s is %d, must be RetryLater, Skip, Cancel or Fail", field, int(b))
	}
	return nil
}

func (b ConflictPolicy) String() string {
	switch b {
	case RetryLater:
		return "RetryLater"
	case Skip:
		return "Skip"
	case Cancel:
		return "Cancel"
	case Fail:
		return "Fail"
	default:
		return "ConflictPolicy(" + strconv.Itoa(int(b)) + ")"
	}
}

// snoozed is the error for which River snoozes a job. It has the reason, for the middlewares outside.
type snoozed struct {
	err    error
	snooze error
}

func snooze(err error, d time.Duration) error { return &snoozed{err, river.JobSnooze(max(d, 0))} }

func (s *snoozed) Error() string   { return s.err.Error() }
func (s *snoozed) Unwrap() []error { return []error{s.err, s.snooze} }

// IsFailure reports whether River counts the error as a failure, for telemetry.
func (*snoozed) IsFailure() bool { return false }

// failedError is the error of a conflict under Fail, which the middlewares outside do not snooze.
type failedError struct{ error }

func (e *failedError) Unwrap() error { return e.error }
