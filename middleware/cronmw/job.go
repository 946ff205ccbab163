package cronmw

import (
	"cmp"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	maxNameLen = 128

	defaultLateness = 5 * time.Minute
	maxLateness     = 7 * 24 * time.Hour
	maxEarly        = time.Minute // the longest time before the tick's time at which an instance may claim it
	leastSlack      = time.Minute // the least difference between Keep and the greatest lateness of a tick
	defaultSlack    = time.Hour   // the same difference for the default of Keep
	maxKeep         = 366 * 24 * time.Hour
)

// Overlap decides what happens to a tick while an earlier run of the job continues.
type Overlap int

const (
	// Forbid skips the tick on all instances. The skip is recorded as the outcome of the tick, so
	// it does not matter when an instance requests the tick. The earlier run may be on any
	// instance. If its process has died, it blocks the job until its lease ends.
	Forbid Overlap = iota
	// Allow runs the tick next to the earlier run.
	Allow
	// Replace ends the earlier run: its ctx is canceled with lockcore.ErrReplaced, its lease is no
	// longer renewed, and it has failed. The new tick begins within a second after that run has
	// returned or its lease has ended. If the new tick has to wait longer than a lease and 3 s, it
	// is skipped. Of several ticks that wait, the newest begins, and the others are skipped. A
	// takeover ends no run.
	Replace
)

// CatchUp decides what happens to missed ticks: ticks that were due while no instance ran.
type CatchUp int

const (
	// CatchUpNone runs no missed tick.
	CatchUpNone CatchUp = iota
	// CatchUpLatest runs the latest missed tick once, as soon as an instance runs, but not after
	// the next tick is due. If the next tick is due after MaxLateness, MaxLateness does not apply.
	// It is for [Jobs]. [AddTo] returns an error for it.
	//
	// The backend remembers for 9 to 12 months since when the job has existed, and each tick at
	// least until the next one.
	//
	//   - A job that is new, or has another spec or name than before, has missed nothing.
	//   - A tick that was skipped, failed, or (without Standby) was cut short by a crash was not
	//     missed.
	CatchUpLatest
)

// Job has the options of a job. With the zero value fn begins at most once for each tick, at most 5
// min late, and not while an earlier run continues.
//
// A failure of fn is the outcome of the tick, and no instance runs the tick again. A panic is a
// failure, and so is a run that MaxHold, Stall or an operator (Revoke) ended. If fn marks its error
// with guard.NoEffect, a standby, or another instance that requests the tick in time, runs the tick
// again.
//
// If Redis is unavailable when a tick is due, the instance requests the tick again until it is too
// late, or until the next tick is due. An instance that had the tick, but could not begin because
// Redis became unavailable, begins when Redis is back in time, even after more than a lease. If the
// reply to its claim was lost, and Redis is unavailable for longer than a lease, no instance knows
// that fn did not begin. The tick is then treated like one whose instance died.
//
// Change MaxLateness, Keep and CatchUp one at a time, see Keep.
type Job struct {
	// Terms of each run. Fields that are zero are those of the Locker.
	//
	//   - Lease, MaxHold and Stall count from the start of fn.
	//   - With Forbid and Replace, MinHold keeps the job's key after a run. A tick that is due meanwhile is
	//     skipped. If a standby runs the same tick again, it waits.
	//   - Default of Name: the name of the job.
	//   - Wait must be 0: a tick does not wait, see Standby.
	//   - MaxWaiting, also that of the Locker, bounds only the standbys for one tick that share a
	//     Locker.
	Terms lockcore.Terms
	// Overlap decides what happens to a tick while an earlier run continues. Default: Forbid.
	Overlap Overlap
	// MaxLateness is the longest time from a tick's time until it is granted, by the clock of
	// Redis (guard.Hold.GrantedAt): 1 s to 7 days. Default: 5 min. A tick that is granted later
	// does not run, see Late. fn begins a round trip after the grant.
	//
	//   - It does not apply to a standby that takes the tick over. For a standby that has waited
	//     for a run of the tick, the limit applies to the time at which that run began.
	//   - With CatchUpLatest the limit is the next tick, if that is later.
	//   - If the clock of Redis is set back, a tick may be late for it, but never begins early.
	MaxLateness time.Duration
	// Standby makes the other instances wait while one runs a tick. If that instance dies, one of
	// the others runs the tick again about a lease later. In two cases one of them runs the tick
	// again at once: if fn returns an error of guard.NoEffect, or if fn fails after its ctx has
	// ended. The ctx must have ended by Options.CancelOnStop, a lost lease or Locker.Close
	// (lockcore.ErrGivenUp).
	//
	// Every other error of fn is a failure, and so is a panic. A run that MaxHold, Stall, an
	// operator or Replace ended (lockcore.ErrMaxHold, ErrStalled, ErrRevoked, ErrReplaced) is also a
	// failure. A failed tick
	// is not run again. But if fn ignores the end of its ctx, its lease expires, and a standby runs
	// the tick next to it.
	//
	// Without Standby no instance waits, and a tick whose instance died is not run again. The
	// instance that has the next tick, or the first one after the lease of the dead instance,
	// reports it as Abandoned. Default: false.
	//
	// fn can detect a further run of its tick: guard.Attempt with Tick.Key.
	Standby bool
	// CatchUp decides what happens to missed ticks. Default: CatchUpNone.
	CatchUp CatchUp
	// SkipRepeated removes the ticks in the second pass of an hour that the zone repeats. Use it
	// for specs with fixed hours. Default: both passes have ticks, an hour apart.
	SkipRepeated bool
	// Keep is how long the outcome of a tick is remembered, see idempotency.Lookup. It must be at
	// least 1 min longer than MaxLateness, so that no difference of the clocks makes a tick run
	// twice. At most 366 days. Default: an hour longer than MaxLateness or the time to the next
	// tick, whichever is longer.
	//
	// The release that ran a tick decides how long the tick is remembered. If another release lets
	// the tick begin later than that, it may run twice. With the default, CatchUp can be introduced
	// at any time, because each tick is remembered until an hour after the next one.
	Keep time.Duration
	// OnResult gets the result of each tick on this instance, after fn has returned. Before fn
	// begins, it may get the result Abandoned of an earlier tick. It is called in the goroutine of
	// the tick. Default: not called.
	OnResult func(Result)
}

// Validate reports every problem of j at once. Each message names the field, its value and the
// bound.
func (j Job) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("cronmw: Job."+format, args...)) }
	if err := j.Terms.Validate(); err != nil {
		errs = append(errs, errtext.Prefix("cronmw: Job", err))
	}
	if j.Terms.Wait != 0 {
		bad("Terms.Wait is %v, must be 0: a tick waits only with Standby", j.Terms.Wait)
	}
	if j.Overlap < Forbid || j.Overlap > Replace {
		bad("Overlap is %d, must be Forbid, Allow or Replace", j.Overlap)
	}
	if j.CatchUp != CatchUpNone && j.CatchUp != CatchUpLatest {
		bad("CatchUp is %d, must be CatchUpNone or CatchUpLatest", j.CatchUp)
	}
	if j.MaxLateness != 0 && (j.MaxLateness < time.Second || j.MaxLateness > maxLateness) {
		bad("MaxLateness is %v, must be between 1s and %v", j.MaxLateness, maxLateness)
	}
	if least := j.withDefaults().MaxLateness + leastSlack; j.Keep != 0 && (j.Keep < least || j.Keep > maxKeep) {
		bad("Keep is %v, must be between %v (MaxLateness plus a minute) and %v", j.Keep, least, maxKeep)
	}
	return errtext.Join(errs...)
}

// withDefaults returns j with the defaults that do not depend on the Locker.
func (j Job) withDefaults() Job {
	j.MaxLateness = cmp.Or(j.MaxLateness, defaultLateness)
	return j
}

// completed returns j with all defaults, including those of l, the Locker's terms. once computes
// the terms of the tick's key from the final values.
func (j Job) completed(name string, l lockcore.Terms) Job {
	j = j.withDefaults()
	t := &j.Terms
	t.Name = cmp.Or(t.Name, name)
	t.Lease = cmp.Or(t.Lease, l.Lease)
	t.MaxHold = cmp.Or(t.MaxHold, l.MaxHold)
	t.MinHold = cmp.Or(t.MinHold, l.MinHold)
	t.Stall = cmp.Or(t.Stall, l.Stall)
	return j
}

// once returns the options for the key of a tick. Without Standby fn begins at most once for each
// tick.
func (s *singleton) once(at time.Time, wait time.Duration) guard.OnceOptions {
	j := s.job
	o := guard.OnceOptions{Terms: j.Terms, Keep: max(j.Keep, s.lateness(at)+leastSlack), Mode: guard.AtMostOnce}
	if j.Keep == 0 { // until after the next tick, so that a later release can introduce CatchUpLatest
		o.Keep = min(max(j.MaxLateness, s.gap(at))+defaultSlack, maxKeep)
	}
	if j.Standby {
		o.Mode = guard.AtLeastOnce
	}
	o.Terms.Wait = wait
	o.Terms.MinHold = 1       // the shortest: an instance that refuses a tick leaves it to the others at once
	if o.Terms.MaxHold != 0 { // Job.Terms.MaxHold counts from fn; before it an instance may wait for the tick's time and for the overlap key
		o.Terms.MaxHold = min(o.Terms.MaxHold+maxEarly+s.patience()+j.Terms.MinHold, maxHold)
	}
	return o
}

const maxHold = 30 * 24 * time.Hour // the longest Terms.MaxHold

func checkName(name string) error {
	if name == "" || len(name) > maxNameLen {
		return fmt.Errorf("cronmw: name %q is %d bytes long, must be 1 to %d", name, len(name), maxNameLen)
	}
	return nil
}
