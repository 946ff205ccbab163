package asynqmw

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"
)

// Periodic is a task that shall be enqueued at every tick of a schedule, once for all the schedulers that have it.
type Periodic struct {
	// Name and nominal time are the ID of each tick's task, see [TickID]: another name is another job.
	Name string
	// Spec is a schedule as asynq's scheduler takes it: five fields, @hourly and the like, with CRON_TZ=ZONE in front if it is
	// not of TickOptions.Location. @every is refused, for it counts from the start of its process: no two have the same ticks.
	Spec string
	// Task is enqueued as it is at every tick.
	Task *asynq.Task
	// Opts are those of [EnqueueTick].
	Opts []asynq.Option
}

// TickOptions of [Ticks].
type TickOptions struct {
	// Location is the time zone of specs that name none. Default: UTC. An hour that the zone has twice has two ticks, one
	// that it skips none.
	Location *time.Location
	// Ahead is for how long ticks are announced to the scheduler in advance. It must be longer than SyncInterval of the
	// asynq.PeriodicTaskManager, else ticks are missed. Default 15 min, where that of SyncInterval is 3 min. 1 min to 24 h.
	Ahead time.Duration
}

const defaultAhead = 15 * time.Minute

// Ticks makes asynq's scheduler safe to run several times: of all that have the same tasks, one enqueues each tick.
//
//	ticks, err := asynqmw.Ticks(asynqmw.TickOptions{}, asynqmw.Periodic{Name: "report", Spec: "0 6 * * *", Task: report})
//	manager, err := asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
//		RedisConnOpt:               redis,
//		PeriodicTaskConfigProvider: ticks,
//	})
//
// asynq.Scheduler alone cannot do that: Register fixes the options of all ticks, task ID included. So each tick to come is
// an entry of its own here, with its own ID, that asynq adds when it is announced and removes afterwards; the ID is that of
// the nominal time however late the entry fires. To the others the scheduler answers asynq.ErrTaskIDConflict: in
// PostEnqueueFunc that error means that the tick is enqueued already.
//
// A tick at which no scheduler runs is missed: for catching up, and for jobs without a queue, see package cronmw. Every
// problem of the tasks is reported at once.
func Ticks(o TickOptions, tasks ...Periodic) (asynq.PeriodicTaskConfigProvider, error) {
	o.Ahead = cmp.Or(o.Ahead, defaultAhead)
	if o.Location == nil {
		o.Location = time.UTC
	}
	var errs []error
	if o.Ahead < time.Minute || o.Ahead > 24*time.Hour {
		errs = append(errs, fmt.Errorf("TickOptions.Ahead is %v, must be between 1m and 24h", o.Ahead))
	}
	t, names := &ticks{o: o}, map[string]bool{}
	for i, p := range tasks {
		s, err := p.parse()
		if names[p.Name] {
			err = errors.Join(err, errors.New("another task has this name"))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("task %d, %q: %w", i, p.Name, err))
		}
		names[p.Name] = true
		t.tasks = append(t.tasks, scheduled{p, s})
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("asynqmw: Ticks: %w", err)
	}
	return t, nil
}

func (p Periodic) parse() (cron.Schedule, error) {
	s, err := cron.ParseStandard(p.Spec)
	if err != nil {
		err = fmt.Errorf("spec %q: %w", p.Spec, err)
	} else if _, every := s.(cron.ConstantDelaySchedule); every {
		err = fmt.Errorf("spec %q counts from the start of its process, so that no two have the same ticks: write */5 * * * * instead of @every 5m", p.Spec)
	}
	if p.Task == nil {
		err = errors.Join(err, errors.New("task must not be nil"))
	}
	return s, errors.Join(err, checkTick(p.Name, p.Opts))
}

type scheduled struct {
	Periodic

	schedule cron.Schedule
}

type ticks struct {
	o     TickOptions
	tasks []scheduled
}

// lateTick is how long a tick stays announced after its time, for a scheduler that fires late.
const lateTick = time.Minute

// GetConfigs announces the ticks to come.
func (t *ticks) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	now := time.Now().In(t.o.Location)
	var configs []*asynq.PeriodicTaskConfig
	for _, p := range t.tasks {
		end := now.Add(t.o.Ahead)
		for at := p.schedule.Next(now.Add(-lateTick)); !at.IsZero() && !at.After(end); at = p.schedule.Next(at) {
			opts, err := tickOptions(p.Name, at, p.Opts)
			if err != nil {
				return nil, err // Ticks has checked them
			}
			configs = append(configs, &asynq.PeriodicTaskConfig{Cronspec: onlyAt(at), Task: p.Task, Opts: opts})
		}
	}
	return configs, nil
}

// onlyAt is a schedule of at alone, for a year. It is in UTC, where no minute comes twice.
func onlyAt(at time.Time) string {
	at = at.UTC()
	return fmt.Sprintf("CRON_TZ=UTC %d %d %d %d *", at.Minute(), at.Hour(), at.Day(), int(at.Month()))
}
