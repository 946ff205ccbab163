package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

const (
	period  = 2 * time.Second
	chapter = 9 * time.Second
)

// chapters are the parts of the story. right checks the result, and want describes it.
var chapters = []struct {
	title, want string
	tell        func(context.Context, *stage) (row, error)
	right       func(row) bool
}{
	{
		"a lock on the job's name", "several runs a tick", lockOnName,
		func(r row) bool { return r.ticks >= 3 && r.runs > r.ticks && r.most > 1 },
	},
	{
		"a key for each tick", "one run a tick", keyPerTick,
		func(r row) bool { return r.ticks >= 3 && r.runs == r.ticks && r.most == 1 },
	},
	{
		"the winner is cut off", "the tick is run again by one standby", winnerDies,
		func(r row) bool { return r.ticks == 1 && r.runs == 2 && r.takeovers == 1 },
	},
}

// Each instance acquires the lock when its own clock reaches the time of the job. The job is short,
// so the lock is free again when the next clock reaches that time.
func lockOnName(ctx context.Context, s *stage) (row, error) {
	return s.act(ctx, chapter, func(ctx context.Context, in *instance) error {
		for at := next(in.now()); ; at = at.Add(period) {
			if !sleep(ctx, at.Sub(in.now())) {
				return nil
			}
			tick := cronmw.Tick{Name: "report", Time: at.UTC()}
			err := guard.Exclusive(ctx, in.locks, "report", lockcore.Terms{Wait: lockcore.NoWait}, func(ctx context.Context) error {
				return s.report(ctx, in, tick)
			})
			if err != nil {
				s.say("  %s did not run %s: %v", in.name, clock(tick), err)
			}
		}
	})
}

// next is the next tick by a clock.
func next(now time.Time) time.Time { return now.Truncate(period).Add(period) }

// The job and the clocks are the same. The first instance to claim the tick waits for its time and
// runs it. The others find the tick held or done.
func keyPerTick(ctx context.Context, s *stage) (row, error) {
	return s.act(ctx, chapter, func(ctx context.Context, in *instance) error {
		jobs, err := cronmw.New(in.locks, cronmw.Options{Now: in.now})
		if err != nil {
			return err
		}
		err = jobs.Every("report", period, cronmw.Job{OnResult: in.heard}, func(ctx context.Context, t cronmw.Tick) error {
			return s.report(ctx, in, t)
		})
		if err != nil {
			return err
		}
		return jobs.Run(ctx)
	})
}

// One tick of a job that takes 3 s. The instance that runs it loses its network, as if it had died.
// Its ctx ends before its lease expires. Then one of the two standby instances runs the tick again.
func winnerDies(ctx context.Context, s *stage) (row, error) {
	due := time.Now().Add(2 * period).Truncate(time.Second)
	spec := due.UTC().Format("5 4 15 2 1 *") // second, minute, hour, day, month
	return s.act(ctx, chapter+2*time.Second, func(ctx context.Context, in *instance) error {
		jobs, err := cronmw.New(in.locks, cronmw.Options{Now: in.now})
		if err != nil {
			return err
		}
		job := cronmw.Job{Standby: true, OnResult: in.heard}
		err = jobs.Add("invoice", spec, job, func(ctx context.Context, t cronmw.Tick) error {
			err := s.report(ctx, in, t)
			if _, again := guard.Attempt(ctx, t.Key()); !again {
				s.say("  %s is cut off in the middle of it", in.name)
				in.cable.cut()
			}
			if !sleep(ctx, 3*time.Second) {
				return context.Cause(ctx)
			}
			return err
		})
		if err != nil {
			return err
		}
		return jobs.Run(ctx)
	})
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
