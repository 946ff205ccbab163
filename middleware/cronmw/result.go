package cronmw

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Outcome says what a tick came to on one instance.
type Outcome int

// The outcomes of a tick.
const (
	// NotRun: Err says why. Redis was away, the Locker is closed, Run has ended, or (without Standby) the instance that ran it died.
	NotRun Outcome = iota
	// Ran: fn ran here; Err is what it came to.
	Ran
	// TookOver: the same, after an instance that died or was cut short.
	TookOver
	// Elsewhere: another instance has the tick, or has decided on it.
	Elsewhere
	// Skipped: an earlier run goes on, or MinHold keeps the job's key after one. Err is a *lockcore.BusyError that says who runs; its
	// Holder is empty if nobody does.
	Skipped
	// Late: refused. Err is a *LateError.
	Late
	// Early: refused. Err is an *EarlyError.
	Early
	// Abandoned: the instance that ran the tick died, and no other instance runs it. The instance that has the next
	// tick reports it. Err is a *lockcore.AbandonedError.
	Abandoned
)

func (o Outcome) String() string {
	switch o {
	case NotRun:
		return "not run"
	case Ran:
		return "ran"
	case TookOver:
		return "took over"
	case Elsewhere:
		return "elsewhere"
	case Skipped:
		return "skipped"
	case Late:
		return "late"
	case Early:
		return "early"
	case Abandoned:
		return "abandoned"
	default:
		return "Outcome(" + strconv.Itoa(int(o)) + ")"
	}
}

// Result is what a tick came to on one instance.
type Result struct {
	Tick    Tick
	Outcome Outcome
	// Err is, after Ran and TookOver: nil, what fn returned, a *PanicError, or why the lease ended before a fn that returned nil
	// (lockcore.ErrLost, ErrMaxHold, ErrStalled, ErrRevoked, ErrGivenUp). Else it says why fn did not run, and satisfies
	// errors.Is(err, lockcore.ErrNotRun); nil after Elsewhere.
	Err error

	panicked bool
}

// LateError says that a tick was asked for too late, by the clock of Redis: the instance was paused, its clock is behind, or
// Redis was away. Nobody runs it any more.
type LateError struct{ By, Max time.Duration }

func (e *LateError) Error() string {
	return fmt.Sprintf("cronmw: %v late by the clock of Redis, more than %v", e.By.Round(time.Millisecond), e.Max)
}

// Is makes a LateError match lockcore.ErrNotRun.
func (*LateError) Is(target error) bool { return target == lockcore.ErrNotRun }

// ErrorType names the class for telemetry.
func (*LateError) ErrorType() string { return "late" }

// EarlyError says that a tick was asked for more than a minute too soon, by the clock of Redis: the clock of the instance is ahead.
// The tick is left to the others.
type EarlyError struct{ By time.Duration }

func (e *EarlyError) Error() string {
	return fmt.Sprintf("cronmw: %v early by the clock of Redis: the clock of this machine is ahead", e.By.Round(time.Millisecond))
}

// Is makes an EarlyError match lockcore.ErrNotRun.
func (*EarlyError) Is(target error) bool { return target == lockcore.ErrNotRun }

// ErrorType names the class for telemetry.
func (*EarlyError) ErrorType() string { return "early" }

// PanicError is a panic of fn. The tick has failed.
type PanicError struct {
	Value any
	Stack []byte // where it was raised
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrorType names the class for telemetry.
func (*PanicError) ErrorType() string { return "panic" }
