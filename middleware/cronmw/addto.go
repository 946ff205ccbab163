package cronmw

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// AddTo adds a job to a cron that you already have. Each tick of spec runs on one of the instances
// that add a job of this name. The parser of c parses spec in the zone of c, which must be the same
// on all instances. The default zone of a cron is the machine's: use cron.WithLocation(time.UTC).
// The entry can be removed from c, and runs through the chain of c.
//
//   - The ctx of fn ends with the lease, not at c.Stop. The ctx that c.Stop returns waits for the
//     runs of this instance, and with Standby also for those of other instances. Close locks before
//     you wait for it.
//   - Job.OnResult gets the result of each tick.
//   - A panic of fn is recorded as the tick's failure, and passes on as a *PanicError. It ends the
//     process unless cron.Recover is in the chain. Put cron.Recover inside of
//     cron.SkipIfStillRunning: cron.WithChain(cron.SkipIfStillRunning(l), cron.Recover(l)). Outside
//     of it, one panic makes cron skip all later runs of the job.
//   - After a pause of the process, cron runs one of the missed ticks, the oldest.
//   - A wrapper of the chain that skips a run drops the tick on this instance. A wrapper that
//     delays runs (DelayIfStillRunning) runs the newest tick first.
//   - A call of the entry's job by your own code runs nothing, except for a tick that a wrapper
//     skipped.
//
// AddTo returns an error for nil arguments, for an invalid name, spec or Job, and for a name that c
// already has. It also returns an error for @every and @reboot, for Job.CatchUp (use [Jobs]), and
// for a Locker of lockcore.NewQuorum.
func AddTo(c *cron.Cron, locks *lockcore.Locker, name, spec string, j Job, fn func(ctx context.Context, t Tick) error) (cron.EntryID, error) {
	s, err := newSingleton(locks, name, j, fn)
	if c == nil {
		return 0, errtext.Join(err, errors.New("cronmw: AddTo: cron must not be nil"))
	}
	if j.CatchUp != CatchUpNone {
		err = errtext.Join(err, errors.New("cronmw: AddTo: Job.CatchUp is for Jobs, must be CatchUpNone: cron starts with the next tick"))
	}
	for _, e := range c.Entries() {
		if other, ok := e.Job.(*job); ok && other.name == name {
			err = errtext.Join(err, fmt.Errorf("cronmw: AddTo: this cron has a job %q already", name))
		}
	}
	schedule, specErr := parsedBy(c, spec)
	if err = errtext.Join(err, specErr); err != nil {
		return 0, err
	}
	if s.plan, err = newPlan(schedule, c.Location(), spec, j.SkipRepeated, time.Now()); err != nil {
		return 0, err
	}
	h := &transfer{Schedule: s.Schedule}
	return c.Schedule(h, &job{s, h}), nil
}

// parsedBy returns spec as parsed by c. It adds a job that does nothing and removes it again,
// because cron has no other way to use its parser.
func parsedBy(c *cron.Cron, spec string) (cron.Schedule, error) {
	spec, err := checkSpec(spec)
	if err != nil {
		return nil, err
	}
	id, err := c.AddFunc(spec, func() {})
	if err != nil {
		return nil, fmt.Errorf("cronmw: spec %q: %w", spec, err)
	}
	defer c.Remove(id)
	return c.Entry(id).Schedule, nil
}

// job is a cron.Job for a singleton.
type job struct {
	*singleton
	ticks *transfer
}

// Run implements cron.Job: it runs the tick of the calling goroutine, if there is one.
func (j *job) Run() {
	at, ok := j.ticks.take() //planted:tick-taken
	if !ok {
		return
	}
	if r := j.tick(context.Background(), at); r.panicked {
		panic(r.Err)
	}
}
