package cronmw_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/robfig/cron/v3"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/cronmw"
)

// A job that runs every second: the first of the six fields are seconds.
func ExampleJobs_Add() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	jobs, err := cronmw.New(locks, cronmw.Options{})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ticks := make(chan cronmw.Tick, 10)
	err = jobs.Add("report", "* * * * * *", cronmw.Job{}, func(_ context.Context, t cronmw.Tick) error {
		ticks <- t
		stop() // in a program: signal.NotifyContext
		return nil
	})
	if err != nil {
		panic(err)
	}
	fmt.Println(jobs.Run(ctx))
	tick := <-ticks
	fmt.Println(tick.Name, tick.Time.Location(), tick.Time.Nanosecond())
	// Output:
	// <nil>
	// report UTC 0
}

// A sync that is not done when the next tick is due starts again.
func ExampleOverlap() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	jobs, err := cronmw.New(locks, cronmw.Options{})
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	run := 0
	results := make(chan cronmw.Result, 10)
	job := cronmw.Job{Overlap: cronmw.Replace, OnResult: func(r cronmw.Result) { results <- r }}
	err = jobs.Every("sync", time.Second, job, func(ctx context.Context, _ cronmw.Tick) error {
		if run++; run == 1 {
			<-ctx.Done() // it would never end
			return context.Cause(ctx)
		}
		stop()
		return nil
	})
	if err != nil {
		panic(err)
	}
	if err := jobs.Run(ctx); err != nil {
		panic(err)
	}
	r := <-results
	fmt.Println(r.Outcome, errors.Is(r.Err, lockcore.ErrReplaced))
	// Output: ran true
}

// Two instances of a program use one Redis. Each tick runs on one of them.
func Example_instances() {
	server, err := miniredis.Run() // in a program: the Redis that all instances share
	if err != nil {
		panic(err)
	}
	defer server.Close()
	runs := make(chan cronmw.Tick, 2)
	others := make(chan struct{}, 2)
	job := cronmw.Job{OnResult: func(r cronmw.Result) {
		if r.Outcome == cronmw.Elsewhere {
			others <- struct{}{}
		}
	}}
	ctx, stop := context.WithCancel(context.Background())
	var ended []chan error
	for range 2 {
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer rdb.Close()
		locks, err := lockcore.New(rdb, lockcore.Options{})
		if err != nil {
			panic(err)
		}
		defer locks.Close(context.Background())
		jobs, err := cronmw.New(locks, cronmw.Options{})
		if err != nil {
			panic(err)
		}
		err = jobs.Add("report", "* * * * * *", job, func(_ context.Context, t cronmw.Tick) error {
			runs <- t
			return nil
		})
		if err != nil {
			panic(err)
		}
		end := make(chan error)
		ended = append(ended, end)
		go func() { end <- jobs.Run(ctx) }()
	}
	tick := <-runs
	<-others
	stop()
	for _, end := range ended {
		fmt.Println(<-end)
	}
	fmt.Println(tick.Name, tick.Time.Location(), tick.Time.Nanosecond())
	// Output:
	// <nil>
	// <nil>
	// report UTC 0
}

// A job for a cron that you already have.
func ExampleAddTo() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	c := cron.New(cron.WithLocation(time.UTC), cron.WithSeconds())
	ran := make(chan bool)
	_, err = cronmw.AddTo(c, locks, "report", "* * * * * *", cronmw.Job{}, func(_ context.Context, t cronmw.Tick) error {
		ran <- time.Since(t.Time) >= 0
		return nil
	})
	if err != nil {
		panic(err)
	}
	c.Start()
	fmt.Println("in time:", <-ran)
	for stopped := c.Stop(); stopped.Err() == nil; { // receives also from runs that began meanwhile
		select {
		case <-ran:
		case <-stopped.Done():
		}
	}
	// Output: in time: true
}

// A tick is due while no instance runs. With CatchUpLatest it runs when an instance starts.
func ExampleCatchUp_latest() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	deploy := func(until func(cronmw.Result) bool) {
		ctx, stop := context.WithCancel(context.Background())
		jobs, err := cronmw.New(locks, cronmw.Options{})
		if err != nil {
			panic(err)
		}
		job := cronmw.Job{CatchUp: cronmw.CatchUpLatest, OnResult: func(r cronmw.Result) {
			if r.Outcome == cronmw.Ran && until(r) {
				stop()
			}
		}}
		if err := jobs.Every("report", time.Second, job, func(context.Context, cronmw.Tick) error { return nil }); err != nil {
			panic(err)
		}
		fmt.Println(jobs.Run(ctx))
	}
	deploy(func(cronmw.Result) bool { return true })
	time.Sleep(1500 * time.Millisecond) // longer than the interval, so a tick is missed
	again := time.Now()
	deploy(func(r cronmw.Result) bool { return r.Tick.Time.Before(again) })
	// Output:
	// <nil>
	// <nil>
}

// The mistake: @every counts from the start of the process, so no two instances have the same
// ticks.
func ExampleJobs_Add_every_incorrect() {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		panic(err)
	}
	defer locks.Close(context.Background())
	jobs, err := cronmw.New(locks, cronmw.Options{})
	if err != nil {
		panic(err)
	}
	err = jobs.Add("sync", "@every 5m", cronmw.Job{}, func(context.Context, cronmw.Tick) error { return nil })
	fmt.Println(err)
	// Output: cronmw: spec "@every 5m" counts from the start of the process, so each instance has other ticks: use Jobs.Every, or fields such as */5
}

// The mistake: a name that contains the name of the instance. Each instance then has another job,
// and runs every tick. A renamed job is another job too: during a deploy both names run.
func ExampleJobs_Add_name_incorrect() {
	for _, host := range []string{"pod-1", "pod-2"} {
		fmt.Println(cronmw.Tick{Name: "report-" + host, Time: time.Date(2026, 3, 8, 7, 30, 0, 0, time.UTC)}.Key())
	}
	// Output:
	// cron:report-pod-1@2026-03-08T07:30:00Z
	// cron:report-pod-2@2026-03-08T07:30:00Z
}
