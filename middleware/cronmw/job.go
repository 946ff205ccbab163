package cronmw

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/guard"
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
	// Forbid skips the tick, for all instances: the skip is recorded as what the tick came to, so that it does not depend on
	// which instance asks when. The run before is seen wherever it runs. One whose process died counts until its lease is over.
	Forbid Overlap = iota
	// Allow runs it beside the earlier one.
	Allow
)

// CatchUp says what becomes of ticks that no instance was there for.
type CatchUp int

const (
	// CatchUpNone leaves them out.
	CatchUpNone CatchUp = iota
	// CatchUpLatest runs the latest of them once, as soon as an instance is there, but not after the next tick is due; so a
	// tick of such a job is late only then. It is for Jobs, not for AddTo. What a job has missed is known by what is
	// remembered of it: since when it has existed, for 9 to 12 months, and its ticks, until the one after. A job that is new, or has another
	// spec or name than before, has missed nothing. A tick that was skipped, failed, or began and was cut short by a crash
	// (without Standby) was not missed.
	CatchUpLatest
)

// Job is how the ticks of a job run. The zero value is safe: each tick is begun at most once, not beside the run before, and not
// more than 5 min late.
type Job struct {
	// Terms of each run: Lease, MaxHold and Stall, from the start of fn, MinHold, which with Forbid holds up the next run, and Name, by
	// default the job's. Wait must be zero: a tick does not wait, see Standby.
	Terms lockcore.Terms
	// Overlap is Forbid by default.
	Overlap Overlap
	// MaxLateness is by how much a tick may begin after its time, both by the clock of Redis: a tick that an instance hears of
	// later is refused, see Late. Default 5 min. 1 s to 7 days. Takeovers are not bound by it.
	MaxLateness time.Duration
	// Standby lets the other instances watch the one that runs a tick. If that dies, or is shut down or loses its lease before fn
	// has succeeded, one of them runs the tick again, at most a lease later. Without it they do not care, and a tick whose instance died stays undone.
	Standby bool
	// CatchUp is CatchUpNone by default.
	CatchUp CatchUp
	// SkipRepeated leaves out the second pass of an hour that the zone repeats. It is for specs of fixed hours. Default: both
	// passes are ticks, an hour apart.
	SkipRepeated bool
	// Keep is how long it is remembered what a tick came to; see idempotency.Lookup. Default, and what is safe whatever the instances' clocks say: an
	// hour longer than the tick may be late. At least 1 min longer than that, at most 366 days.
	Keep time.Duration
	// OnResult hears what each tick came to on this instance, once fn has returned. It is called from the tick's goroutine.
	OnResult func(Result)
}

// Validate reports every problem of j at once; each names the field, its value and the bound.
func (j Job) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("cronmw: Job."+format, args...)) }
	if err := j.Terms.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("cronmw: Job: %w", err))
	}
	if j.Terms.Wait != 0 {
		bad("Terms.Wait is %v, must be 0: a tick does not wait, unless Standby says so", j.Terms.Wait)
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
	return errors.Join(errs...)
}

func (j Job) withDefaults() Job {
	j.MaxLateness = cmp.Or(j.MaxLateness, defaultLateness)
	return j
}

// once are the options of the tick's key. Without Standby a tick is begun at most once.
func (j Job) once(lateness, wait time.Duration) guard.OnceOptions {
	o := guard.OnceOptions{Terms: j.Terms, Keep: max(j.Keep, lateness+leastSlack), Mode: guard.AtMostOnce}
	if j.Keep == 0 {
		o.Keep = lateness + defaultSlack
	}
	if j.Standby {
		o.Mode = guard.AtLeastOnce
	}
	o.Terms.Wait = wait
	o.Terms.MinHold = 1       // the shortest: who refuses a tick leaves it to the others at once, whatever the Locker's own Terms say
	if o.Terms.MaxHold != 0 { // it counts from the start of fn, which an instance that asks too soon waits for
		o.Terms.MaxHold = min(o.Terms.MaxHold+maxEarly, maxHold)
	}
	return o
}

const maxHold = 30 * 24 * time.Hour // what Terms allow

func checkName(name string) error {
	if name == "" || len(name) > maxNameLen {
		return fmt.Errorf("cronmw: name %q is %d bytes long, must be 1 to %d", name, len(name), maxNameLen)
	}
	return nil
}
