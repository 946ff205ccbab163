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

// AddTo adds a singleton job to a cron that you already have: each tick of spec is run by one of all the instances that
// add a job of this name. spec is parsed by c's own parser in c's own zone, which must be the same on all instances
// (cron.WithLocation(time.UTC): the default is the zone of the machine). The entry can be removed, and goes through c's
// chain. name must be new to c.
//
// fn's ctx ends with the lease, not with c.Stop, whose ctx waits for the runs, and with Standby also for those that other
// instances run: close locks before you wait for it. What a tick came to is told to Job.OnResult. A panic of fn is
// recorded as the tick's failure and passes on, as a *PanicError: it ends the process unless cron.Recover is in the
// chain.
//
// After a pause of the process cron runs one of the missed ticks, the oldest. A wrapper of the chain that skips a run drops
// the tick on this instance; one that delays runs (DelayIfStillRunning) lets the newest go first. Calling the entry's job by
// hand runs nothing, except for a tick that was skipped.
//
// Errors: an invalid name, spec or Job, @every and @reboot, CatchUp (use Jobs), nil arguments.
func AddTo(c *cron.Cron, locks *lockcore.Locker, name, spec string, j Job, fn func(ctx context.Context, t Tick) error) (cron.EntryID, error) {
	s, err := newSingleton(locks, name, j, fn)
	if c == nil {
		return 0, errtext.Join(err, errors.New("cronmw: AddTo: cron must not be nil"))
	}
	if j.CatchUp != CatchUpNone {
		err = errtext.Join(err, errors.New("cronmw: AddTo: Job.CatchUp is for Jobs: cron starts with the next tick"))
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
	h := &handover{Schedule: s.Schedule}
	return c.Schedule(h, &job{s, h}), nil
}

// parsedBy lets c parse the spec, for its parser can be reached in no other way: it takes a job that does nothing and
// loses it again.
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

// job is what cron runs.
type job struct {
	*singleton
	ticks *handover
}

// Run is cron's.
func (j *job) Run() {
	at, ok := j.ticks.take() //planted:tick-taken
	if !ok {
		return
	}
	if r := j.tick(context.Background(), at); r.panicked {
		panic(r.Err)
	}
}
