package asynqmw

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

// Periodic is a task that is enqueued at every tick of a schedule, once for all processes that have
// it.
type Periodic struct {
	// Name identifies the job. The name and the nominal time are the ID of each tick's task, see
	// [TickID]. A renamed job is another job.
	Name string
	// Spec is a schedule of asynq's scheduler: five fields, or a descriptor such as @hourly.
	// CRON_TZ=ZONE in front replaces TickOptions.Location. @every is not allowed, because it counts
	// from the start of the process: no two processes have the same ticks.
	Spec string
	// Task is enqueued unchanged at every tick.
	Task *asynq.Task
	// Opts are the options for [EnqueueTick].
	Opts []asynq.Option
}

// TickOptions are the options of [NewTicks]. The zero value is ready to use.
type TickOptions struct {
	// Location is the time zone of specs that name none. Default: UTC. A time that the zone
	// repeats has two ticks. A time that it skips has none.
	Location *time.Location
	// OnTick is called for each tick. err is nil if the task is enqueued, by this process or by
	// another one. Otherwise err says why not. OnTick runs in the goroutine of the periodic task,
	// so the next tick of that task waits for it. Default: not called.
	OnTick func(name string, at time.Time, err error)
}

// Ticks enqueue periodic tasks. If several processes run Ticks with the same tasks, each tick is
// enqueued once. Make them with [NewTicks].
//
// Ticks replace asynq.Scheduler, which enqueues each task once per process. Unlike asynq.Scheduler,
// Ticks record no history: a tick leaves only its task in Redis.
type Ticks struct {
	client *asynq.Client
	o      TickOptions
	tasks  []scheduled
}

// NewTicks returns Ticks. Their Run enqueues the tasks. NewTicks reports every problem of its
// arguments at once. Examples are a nil client or task, a bad spec, option or name, and a name that
// occurs twice.
func NewTicks(c *asynq.Client, o TickOptions, tasks ...Periodic) (*Ticks, error) {
	var errs []error
	if c == nil {
		errs = append(errs, errors.New("client must not be nil"))
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	if o.OnTick == nil {
		o.OnTick = func(string, time.Time, error) {}
	}
	t, names := &Ticks{client: c, o: o}, map[string]bool{}
	for i, p := range tasks {
		s, err := p.parse(o.Location)
		if names[p.Name] {
			err = errtext.Join(err, errors.New("another task has this name"))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("task %d, %q: %w", i, p.Name, err))
		}
		names[p.Name] = true
		t.tasks = append(t.tasks, scheduled{p, s})
	}
	if err := errtext.Join(errs...); err != nil {
		return nil, fmt.Errorf("asynqmw: NewTicks: %w", err)
	}
	return t, nil
}

func (p Periodic) parse(zone *time.Location) (s cron.Schedule, err error) {
	spec := strings.TrimSpace(p.Spec)
	if (strings.HasPrefix(spec, "TZ=") || strings.HasPrefix(spec, "CRON_TZ=")) && !strings.Contains(spec, " ") { // cron panics at it
		err = fmt.Errorf("spec %q has a zone and nothing else", p.Spec)
	} else if s, err = cron.ParseStandard(spec); err != nil {
		err = fmt.Errorf("spec %q: %w", p.Spec, err)
	} else if _, every := s.(cron.ConstantDelaySchedule); every {
		err = fmt.Errorf("spec %q counts from the start of the process, so no two processes have the same ticks: write */5 * * * * instead of @every 5m", p.Spec)
	} else if s.Next(time.Now().In(zone)).IsZero() {
		err = fmt.Errorf("spec %q has no tick in the next five years", p.Spec)
	}
	if p.Task == nil {
		err = errtext.Join(err, errors.New("task must not be nil"))
	}
	return s, errtext.Join(err, checkTick(p.Name, p.Opts))
}

type scheduled struct {
	Periodic

	schedule cron.Schedule
}

const (
	lookAgain = time.Minute // the longest sleep without a look at the clock: it may be set, and timers stop while the machine is suspended
	tryAgain  = time.Second // before the next attempt to enqueue a tick while Redis is unavailable
)

// Run enqueues each tick when it is due. It returns when ctx ends. While Redis is unavailable, Run
// tries to enqueue a tick every second. It gives up when the tick is late by half of its retention,
// or when the next tick is due. A tick at which no process runs is missed. Package cronmw can catch
// up, and runs jobs without a queue.
func (t *Ticks) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, p := range t.tasks {
		wg.Go(func() { t.loop(ctx, p) })
	}
	wg.Wait()
}

func (t *Ticks) loop(ctx context.Context, p scheduled) {
	for seen := time.Now(); ; {
		at := p.schedule.Next(seen.In(t.o.Location))
		now := time.Now()
		switch {
		case at.IsZero() || at.After(now):
			d := lookAgain
			if !at.IsZero() {
				d = min(d, at.Sub(now))
			}
			if !pause(ctx, d) {
				return
			}
			seen = latest(seen, now)
		default:
			t.o.OnTick(p.Name, at, t.enqueue(ctx, p, at))
			seen = at
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// enqueue tries to enqueue the tick until half of its retention is over, or the next tick is due.
// Later asynq may have deleted the task that another process enqueued, and the tick would be
// enqueued again.
func (t *Ticks) enqueue(ctx context.Context, p scheduled, at time.Time) error {
	end := at.Add(retention(p.Opts) / 2)
	if next := p.schedule.Next(at); !next.IsZero() && next.Before(end) {
		end = next
	}
	err := errors.New("asynqmw: tick missed: it is late by " + time.Since(at).Round(time.Second).String())
	for time.Now().Before(end) {
		err = EnqueueTick(ctx, t.client, p.Name, at, p.Task, p.Opts...)
		if err == nil || errors.Is(err, asynq.ErrDuplicateTask) || !pause(ctx, tryAgain) {
			break
		}
	}
	return err
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pause sleeps for d. It returns false if ctx ends before.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
