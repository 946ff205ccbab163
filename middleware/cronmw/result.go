package cronmw

import (
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Outcome is how a tick ended on one instance. It contains the values of guard.Outcome except
// Replayed and Transferred, and those that only ticks have.
type Outcome int

// These outcomes have the values and texts of guard.Outcome.
const (
	// NotRun means that fn did not run. Err says why: Redis is unavailable, the Locker is closed,
	// Run has ended, or (without Standby) the instance that ran the tick died.
	NotRun = Outcome(guard.NotRun)
	// Ran means that fn ran here. Err is its error.
	Ran = Outcome(guard.Ran)
	// TookOver means that fn ran here, after a run of an instance that died or was cut short.
	TookOver = Outcome(guard.TookOver)
)

// These outcomes exist only for ticks.
const (
	// Elsewhere means that another instance runs the tick or has decided it.
	Elsewhere Outcome = iota + Outcome(guard.Transferred) + 1
	// Skipped means that an earlier run continues, or that MinHold keeps the job's key after one.
	// Err is a *lockcore.BusyError with the holder, which is empty after a run.
	Skipped
	// Late means that the tick did not run, because it was granted too late. Err is a *LateError.
	Late
	// Early means that the tick did not run here, because it was granted more than a minute early.
	// Err is an *EarlyError.
	Early
	// Abandoned means that the instance that ran the tick died, and that no other instance runs it.
	// The instance that has the next tick reports it. Err is a *lockcore.AbandonedError.
	Abandoned
)

func (o Outcome) String() string {
	switch o {
	case NotRun, Ran, TookOver:
		return guard.Outcome(o).String()
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

// Result is the result of a tick on one instance, see Job.OnResult.
type Result struct {
	Tick    Tick
	Outcome Outcome
	// Err depends on the outcome:
	//
	//   - Ran and TookOver: nil, the error of fn, a *PanicError, or, if fn returned nil after its
	//     lease had ended, the reason (lockcore.ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or
	//     ErrGivenUp).
	//   - Elsewhere: nil.
	//   - All others: why fn did not run. It satisfies errors.Is(err, lockcore.ErrNotRun).
	Err error

	panicked bool
}

// LateError is the error of a tick that was granted too late, by the clock of Redis. The instance
// was paused, its clock is behind, or Redis was unavailable. No instance runs the tick any more,
// except for a standby that has waited for a run that began in time.
type LateError struct{ By, Max time.Duration }

func (e *LateError) Error() string {
	return fmt.Sprintf("cronmw: %v late by the clock of Redis, more than %v", e.By.Round(time.Millisecond), e.Max)
}

// Is makes a LateError match lockcore.ErrNotRun.
func (*LateError) Is(target error) bool { return target == lockcore.ErrNotRun }

// ErrorType returns the class of the error for telemetry.
func (*LateError) ErrorType() string { return "late" }

// EarlyError is the error of a tick that was granted more than a minute early, by the clock of
// Redis: the clock of the instance is ahead. The instance leaves the tick to the others.
type EarlyError struct{ By time.Duration }

func (e *EarlyError) Error() string {
	return fmt.Sprintf("cronmw: %v early by the clock of Redis: the clock of this machine is ahead", e.By.Round(time.Millisecond))
}

// Is makes an EarlyError match lockcore.ErrNotRun.
func (*EarlyError) Is(target error) bool { return target == lockcore.ErrNotRun }

// ErrorType returns the class of the error for telemetry.
func (*EarlyError) ErrorType() string { return "early" }

// PanicError is the error of a run of fn that panicked. The tick has failed.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of the goroutine at the panic
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n\n%s", e.Value, e.Stack) }

// Unwrap returns the value of the panic if it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrorType returns the class of the error for telemetry.
func (*PanicError) ErrorType() string { return "panic" }
