package cronmw

import (
	"cmp"
	"errors"
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
	maxEarly        = time.Minute // by which an instance may ask too soon
	leastSlack      = time.Minute // of Keep beyond the time after which a tick is refused
	defaultSlack    = time.Hour
	maxKeep         = 366 * 24 * time.Hour
)

// Overlap says what becomes of a tick while an earlier run of the job still goes on.
type Overlap int

const (
	// Forbid skips the tick, for all instances: the skip is recorded as what the tick came to, so that it does not depend
	// on which instance asks when. The run before is seen wherever it runs. One whose process died counts until its lease
	// is over.
	Forbid Overlap = iota
	// Allow runs it beside the earlier one.
	Allow
)

// CatchUp says what becomes of ticks that no instance was there for.
type CatchUp int

const (
	// CatchUpNone leaves them out.
	CatchUpNone CatchUp = iota
	// CatchUpLatest runs the latest of them once, as soon as an instance is there, but not after the next tick is due.
	// MaxLateness does not bound it if the next tick is later. It is for Jobs, not for AddTo. What a job has missed is
	// known by what is remembered of it: since when it has existed, for 9 to 12 months, and its ticks, until the one
	// after. A job that is new, or has another spec or name than before, has missed nothing. A tick that was skipped,
	// failed, or began and was cut short by a crash (without Standby) was not missed.
	CatchUpLatest
)

// Job is how the ticks of a job run. The zero value is safe: each tick is begun at most once, not beside the run before,
// and not more than 5 min late.
type Job struct {
	// Terms of each run; what is zero is as the Locker has it. Lease, MaxHold and Stall count from the start of fn.
	// MinHold, with Forbid, keeps the job's key after a run: a tick that comes due meanwhile is skipped, and one that a
	// standby runs again waits. Name is by default the job's. Wait must be zero: a tick does not wait, see Standby.
	// NoRenew is refused, also of the Locker: a run longer than Lease would lose its keys. MaxWaiting, also of the Locker,
	// bounds only the standbys for one tick that share a Locker.
	Terms lockcore.Terms
	// Overlap is Forbid by default.
	Overlap Overlap
	// MaxLateness is by how much a tick may begin after its time, both by the clock of Redis: a tick that an instance
	// hears of later is refused, see Late. Default 5 min. 1 s to 7 days. Standbys that take over, or have waited since
	// the tick was in time, are not bound by it.
	MaxLateness time.Duration
	// Standby lets the other instances watch the one that runs a tick. If that dies, one of them runs the tick again
	// about a lease later. One of them runs it again at once if fn returns guard.NoEffect, or fails after its ctx
	// was ended by Options.CancelOnStop, a lost lease or Locker.Close (lockcore.ErrGivenUp). All else that fn returns, a
	// panic, and a run that MaxHold, Stall or an operator ended (lockcore.ErrMaxHold, ErrStalled, ErrRevoked) is a failure,
	// which is not run again; unless fn ignores its ctx: then its lease runs out, and a standby begins beside it. Without Standby nobody watches, and a tick
	// whose instance died stays undone: the instance that has the next tick, or the first one after the lease of the dead
	// one, reports it as Abandoned.
	Standby bool
	// CatchUp is CatchUpNone by default.
	CatchUp CatchUp
	// SkipRepeated leaves out the second pass of an hour that the zone repeats. It is for specs of fixed hours. Default:
	// both passes are ticks, an hour apart.
	SkipRepeated bool
	// Keep is how long it is remembered what a tick came to; see idempotency.Lookup. At least 1 min longer than the
	// tick may be late, which is enough whatever the instances' clocks say; at most 366 days. Default: an hour longer than MaxLateness or
	// the time to the next tick, whichever is longer.
	Keep time.Duration
	// OnResult gets the result of each tick on this instance, when fn has returned. Before fn is called it may get the
	// result Abandoned of an earlier tick. It is called from the tick's goroutine.
	OnResult func(Result)
}

// Validate reports every problem of j at once; each names the field, its value and the bound.
func (j Job) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("cronmw: Job."+format, args...)) }
	if err := j.Terms.Validate(); err != nil {
		errs = append(errs, errtext.Prefix("cronmw: Job", err))
	}
	if j.Terms.Wait != 0 {
		bad("Terms.Wait is %v, must be 0: a tick does not wait, unless Standby says so", j.Terms.Wait)
	}
	if j.Terms.Limit != 0 || j.Terms.Weight != 0 {
		bad("Terms.Limit is %d and Terms.Weight is %d, must be 0", j.Terms.Limit, j.Terms.Weight)
	}
	if j.Terms.NoRenew {
		bad("Terms.NoRenew: " + noRenew)
	}
	if j.Overlap != Forbid && j.Overlap != Allow {
		bad("Overlap is %d, must be Forbid or Allow", j.Overlap)
	}
	if j.CatchUp != CatchUpNone && j.CatchUp != CatchUpLatest {
		bad("CatchUp is %d, must be CatchUpNone or CatchUpLatest", j.CatchUp)
	}
	if j.MaxLateness != 0 && (j.MaxLateness < time.Second || j.MaxLateness > maxLateness) {
		bad("MaxLateness is %v, must be between 1s and %v", j.MaxLateness, maxLateness)
	}
	if least := j.withDefaults().MaxLateness + leastSlack; j.Keep != 0 && (j.Keep < least || j.Keep > maxKeep) {
		bad("Keep is %v, must be between %v, which is MaxLateness and a minute, and %v", j.Keep, least, maxKeep)
	}
	return errtext.Join(errs...)
}

func (j Job) withDefaults() Job {
	j.MaxLateness = cmp.Or(j.MaxLateness, defaultLateness)
	return j
}

// completed has the defaults, and of the Locker's terms those that j leaves open: both keys of a tick need them said.
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

// once are the options of the tick's key. Without Standby a tick is begun at most once.
func (s *singleton) once(at time.Time, wait time.Duration) guard.OnceOptions {
	j := s.job
	o := guard.OnceOptions{Terms: j.Terms, Keep: max(j.Keep, s.lateness(at)+leastSlack), Mode: guard.AtMostOnce}
	if j.Keep == 0 { // also for a release in which the job has CatchUpLatest
		o.Keep = min(max(j.MaxLateness, s.gap(at))+defaultSlack, maxKeep)
	}
	if j.Standby {
		o.Mode = guard.AtLeastOnce
	}
	o.Terms.Wait = wait
	o.Terms.MinHold = 1       // the shortest: who refuses a tick leaves it to the others at once
	if o.Terms.MaxHold != 0 { // it counts from the start of fn, before which an instance may wait for the tick's time and for the overlap key
		o.Terms.MaxHold = min(o.Terms.MaxHold+maxEarly+s.patience()+j.Terms.MinHold, maxHold)
	}
	return o
}

const maxHold = 30 * 24 * time.Hour // what Terms allow

const noRenew = "a run that takes longer than Terms.Lease would lose its keys"

// checkLocker refuses a Locker whose terms no job could change.
func checkLocker(t lockcore.Terms) error {
	if t.NoRenew {
		return errors.New("cronmw: the Locker has Terms.NoRenew: " + noRenew)
	}
	return nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxNameLen {
		return fmt.Errorf("cronmw: name %q is %d bytes long, must be 1 to %d", name, len(name), maxNameLen)
	}
	return nil
}
