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

// Periodic is a task that shall be enqueued at every tick of a schedule, once for all the processes that have it.
type Periodic struct {
	// Name and nominal time are the ID of each tick's task, see [TickID]: another name is another job.
	Name string
	// Spec is a schedule as asynq's scheduler takes it: five fields, @hourly and the like, with CRON_TZ=ZONE in front if
	// it is not of TickOptions.Location. @every is refused, for it counts from the start of its process: no two have the
	// same ticks.
	Spec string
	// Task is enqueued as it is at every tick.
	Task *asynq.Task
	// Opts are those of [EnqueueTick].
	Opts []asynq.Option
}

// TickOptions of [NewTicks]. The zero value is ready to use.
type TickOptions struct {
	// Location is the time zone of specs that name none. Default: UTC. An hour that the zone has twice has two ticks, one
	// that it skips none.
	Location *time.Location
	// OnTick hears of each tick: err is nil if its task is enqueued, by this process or by another, and else why it is
	// not. It is called from the goroutine of the periodic task, whose next tick waits for it. Default: nobody.
	OnTick func(name string, at time.Time, err error)
}

// Ticks enqueue periodic tasks. Every process that runs Ticks of the same tasks comes to the same ticks, and each is
// enqueued once. Make them with [NewTicks].
//
// They stand in for asynq.Scheduler, which enqueues each task once per process, and for its history: that would be a key
// in Redis for each tick, without an expiry.
type Ticks struct {
	client *asynq.Client
	o      TickOptions
	tasks  []scheduled
}

// NewTicks returns Ticks, whose Run enqueues the tasks. Every problem of the tasks is reported at once.
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
		err = fmt.Errorf("spec %q counts from the start of its process, so that no two have the same ticks: write */5 * * * * instead of @every 5m", p.Spec)
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
	lookAgain = time.Minute // at the clock while waiting for a tick: it may be set, and timers stand still with the machine
	tryAgain  = time.Second // to enqueue, while Redis is away
)

// Run enqueues each tick when it is due, until ctx ends; then it returns. While Redis is away a tick is tried again until
// it is half of its Retention late, or the next is due. A tick at which no process runs is missed: for catching up, and
// for jobs without a queue, see package cronmw.
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

// enqueue tries until it may not be known any more that another process has enqueued the tick, or the next one is due.
func (t *Ticks) enqueue(ctx context.Context, p scheduled, at time.Time) error {
	end := at.Add(retention(p.Opts) / 2)
	if next := p.schedule.Next(at); !next.IsZero() && next.Before(end) {
		end = next
	}
	err := errors.New("asynqmw: the tick was missed: it is late by " + time.Since(at).Round(time.Second).String())
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

// pause returns false if ctx ends before.
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
