// Command cron shows how three instances with different clocks run one job. First they use a lock
// on the job's name, which is not enough. Then they use package cronmw. Finally the instance that
// runs a tick is disconnected in the middle of that tick.
//
//	go run ./examples/cron                        on a Redis inside the process
//	go run ./examples/cron -redis localhost:6379  on your Redis; it removes the keys that it makes
//
// It takes half a minute, checks its own numbers, and exits with 1 if they are not as expected.
package main

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/examples/internal/stage"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

const (
	period  = 2 * time.Second
	chapter = 9 * time.Second
)

func main() { program.Main() }

var program = stage.Program{Name: "cron", Play: func(ctx context.Context, s *stage.Stage) error {
	s.Say("three instances on %s: A's clock is right, B's is 0.6 s ahead, C's is 0.6 s behind", s.Where())
	return stage.Tell(ctx, s, "ticks\truns\tmost a tick\ttaken over", []stage.Chapter[row]{
		{
			Title: "a lock on the job's name",
			Tell:  act(s, chapter, lockOnName),
			Right: func(r row) bool { return r.ticks >= 3 && r.runs > r.ticks && r.most > 1 },
		},
		{
			Title: "a key for each tick",
			Tell:  act(s, chapter, keyPerTick),
			Right: func(r row) bool { return r.ticks >= 3 && r.runs == r.ticks && r.most == 1 },
		},
		{
			Title: "the winner is cut off",
			Tell:  act(s, chapter+2*time.Second, winnerDies),
			Right: func(r row) bool { return r.ticks == 1 && r.runs == 2 && r.takeovers == 1 },
		},
	})
}}

// Each instance acquires the lock when its own clock reaches the time of the job. The job is short,
// so the lock is free again when the next clock reaches that time.
func lockOnName(ctx context.Context, in *instance) error {
	for at := in.now().Truncate(period).Add(period); stage.Sleep(ctx, at.Sub(in.now())) == nil; at = at.Add(period) {
		tick := cronmw.Tick{Name: "report", Time: at.UTC()}
		err := guard.Exclusive(ctx, in.Locks, "report", lockcore.Terms{Wait: lockcore.NoWait}, func(context.Context) error {
			in.report(tick)
			return nil
		})
		if err != nil {
			in.Say("  %s did not run %s: %v", in.name, clock(tick), err)
		}
	}
	return nil
}

// The job and the clocks are the same. The first instance to claim the tick waits for its time and
// runs it. The others find the tick held or done.
func keyPerTick(ctx context.Context, in *instance) error {
	jobs, err := cronmw.New(in.Locks, cronmw.Options{Now: in.now})
	if err != nil {
		return err
	}
	err = jobs.Every("report", period, cronmw.Job{OnResult: in.heard}, func(_ context.Context, t cronmw.Tick) error {
		in.report(t)
		return nil
	})
	if err != nil {
		return err
	}
	return jobs.Run(ctx)
}

// One tick of a job that takes 3 s. The instance that runs it loses its network, as if it had died.
// Its ctx ends before its lease expires. Then one of the two standby instances runs the tick again.
func winnerDies(ctx context.Context, in *instance) error {
	jobs, err := cronmw.New(in.Locks, cronmw.Options{Now: in.now})
	if err != nil {
		return err
	}
	due := in.began.Add(2 * period).Truncate(time.Second).UTC().Format("5 4 15 2 1 *") // second, minute, hour, day, month
	job := cronmw.Job{Standby: true, OnResult: in.heard}
	err = jobs.Add("invoice", due, job, func(ctx context.Context, t cronmw.Tick) error {
		in.report(t)
		if _, again := guard.Attempt(ctx, t.Key()); !again {
			in.Say("  %s is cut off in the middle of it", in.name)
			in.Cut()
		}
		return stage.Sleep(ctx, 3*time.Second)
	})
	if err != nil {
		return err
	}
	return jobs.Run(ctx)
}
