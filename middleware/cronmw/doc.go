// Package cronmw runs each tick of a cron job once, on one of many instances of a program.
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"os"
//		"os/signal"
//
//		"github.com/holdfast-go/holdfast/lockcore"
//		"github.com/holdfast-go/holdfast/middleware/cronmw"
//	)
//
//	func main() {
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer locks.Close(context.Background())
//		jobs, err := cronmw.New(locks, cronmw.Options{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		report := func(_ context.Context, t cronmw.Tick) error { log.Print("report of ", t.Time); return nil }
//		if err := jobs.Add("report", "* * * * *", cronmw.Job{}, report); err != nil {
//			log.Fatal(err)
//		}
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
//		defer stop()
//		log.Print("stopped: ", jobs.Run(ctx)) // ends at Ctrl-C
//	}
//
// For one instance, keys in memory are enough. For several instances replace NewMemory by
// lockcore.New with a client of the Redis that they share, and run the same program on each
// instance. [AddTo] adds a job to a robfig/cron that you already have. The page docs/cron.md has a
// program for several pods. It shows what happens when a pod dies, during a deploy, and when clocks
// change.
//
// # Why the key is the tick
//
// A lock on the job's name does not run each tick once. If the job is shorter than the difference
// of two clocks, the second instance finds the lock free again and runs the tick a second time. A
// leader that is replaced misses ticks. So the key of this package is the [Tick]: the job's name
// and its nominal time in the schedule. An instance claims a tick with guard.Once. The clocks of
// the instances decide only which of them requests it first.
//
// # Guarantees
//
// These hold under the conditions of package lockcore, for instances that have added the same name,
// spec and zone:
//
//   - Each tick is decided once, however much the clocks of the instances differ. It runs, or it is
//     skipped because an earlier run continues ([Forbid]) or because Terms.MinHold keeps the job's
//     key.
//   - By the clock of Redis, fn begins neither before the tick's time nor, apart from the
//     exceptions at Job.MaxLateness, later than MaxLateness after it.
//   - Without Job.Standby, fn begins at most once for each tick. With Standby it begins again if
//     the instance dies, but the runs of a tick do not overlap.
//   - With Forbid no two runs of a job overlap, on all instances.
//   - A failure of fn is the outcome of its tick, so no instance runs the tick again. An error that
//     is marked with guard.NoEffect is no failure.
//   - If Redis is unavailable when a tick is due, each instance requests the tick again, until the
//     tick is too late or the next one is due.
//
// # Limits
//
//   - A tick does not run if all instances are stopped for longer than MaxLateness, unless
//     [CatchUpLatest] is set, or if its instance dies without Standby.
//   - With Standby the effect of fn may happen twice, because the run of an instance that died may
//     already have had it.
//   - A tick may begin late. An instance whose clock is ahead keeps the tick until its time. If
//     that instance stops before, the others request the tick again at its time.
//   - A process that is paused for longer than its lease may overlap the next run, see package
//     lockcore.
//
// # What you must do
//
//   - Give the job the same name, spec and zone on all instances. A renamed job is a new job.
//   - Bound fn with Terms.MaxHold if it may hang, and make fn obey its ctx. With Forbid a run that
//     never returns skips all later ticks.
//   - Give a job that runs more often than once a minute a Terms.Lease below its interval, because
//     with Forbid a killed instance blocks the job for a lease.
//   - Look at the results of Job.OnResult: NotRun, Late, Early, Skipped and Abandoned are ticks
//     that did not run here.
//   - Pass [Tick.Key] to downstream systems if an effect must not happen twice.
//   - Stop in this order: end the ctx of [Jobs.Run] and wait for Run, locks.Close, rdb.Close.
//     [AddTo] has another order.
//
// # Testing
//
// Options.Now gives an instance its own clock, and package locktest has a Locker in the process.
// The package works in testing/synctest bubbles, where a year of ticks takes seconds.
package cronmw
