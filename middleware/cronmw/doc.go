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
//		locks, err := lockcore.NewMemory(lockcore.Options{})
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
// instance. [AddTo] adds a job to a robfig/cron that you already have.
//
// A lock on the job's name does not run each tick once. If the job is shorter than the difference
// of two clocks, the second instance finds the lock free again and runs the tick a second time. A
// leader that is replaced misses ticks. So the key of this package is the tick: the job's name and
// its nominal time in the schedule. An instance claims a tick with guard.Once. The clocks decide
// only which instance requests it first.
//
// # Guarantees
//
// These hold under the conditions of package lockcore, for instances that have added the same name,
// spec and zone:
//
//   - Each tick is decided once, however much the clocks of the instances differ. It runs, or it is
//     skipped because an earlier run continues or MinHold keeps the job's key after that run.
//   - fn never begins before the tick's time, by the clock of Redis.
//   - fn does not begin more than MaxLateness after the tick's time, by the clock of Redis. With
//     Standby there are two exceptions. A takeover may begin later. So may a standby that has
//     waited for a run that began within the limit. With CatchUpLatest the limit is the next tick,
//     if that is later. The limit applies to the time of the grant (lockcore.Hold.GrantedAt). fn
//     begins a round trip later. If the clock of Redis is set back, a tick may be refused as late,
//     but does not begin early.
//   - The outcome of a tick is kept for longer than the time in which the tick may begin. So no
//     clock can make it run twice.
//   - Without Standby, fn begins at most once for each tick. With Standby it begins again if the
//     instance dies. The runs of a tick do not overlap, and fn can detect a further run:
//     guard.Attempt with Tick.Key.
//   - With Forbid no two runs of a job overlap, on all instances.
//   - If Redis is unavailable when a tick is due, the instance requests the tick again until it is
//     too late, or until the next tick is due. An instance that had the tick, but could not begin
//     because Redis became unavailable, begins when Redis is back in time, even after more than a
//     lease. If the reply to its claim was lost, and Redis is unavailable for longer than a lease,
//     no instance knows that fn did not begin. The tick then counts as one whose instance died.
//   - A failure of fn is the outcome of the tick: no instance runs it again. If fn marks its error
//     with guard.NoEffect, a standby, or another instance that requests the tick in time, runs the
//     tick again. A panic is a failure, and so is a run that MaxHold, Stall or an operator (Revoke)
//     ended. With Standby, a run that failed because of Options.CancelOnStop, a lost lease or the
//     end of Close is not a failure: a standby runs the tick again.
//   - fn gets the nominal time of its tick, even if its goroutine starts late.
//
// # Limits
//
//   - It is possible that a tick does not run. All instances may be stopped for longer than
//     MaxLateness (see [CatchUpLatest]), or, without Standby, the instance that has the tick may
//     die.
//   - The effect of fn may happen twice: with Standby, a run whose instance died may already have
//     had it.
//   - A tick may begin late. It begins when an instance requests it. An instance whose clock is
//     ahead keeps the tick until its time. If that instance stops before that time, the others
//     request the tick again at its time.
//   - A process that is paused for longer than its lease may overlap the next run: see package
//     lockcore.
//
// # What you must do
//
//   - Give the job the same name, spec and zone on all instances. A renamed job is a new job.
//     During a deploy the ticks of both names run. A run under the old name does not delay a run
//     under the new name. The new name has no missed ticks. While two releases have different
//     specs, each runs its own ticks.
//   - Use [Jobs.Every], not @every. @every is refused, because it counts from the start of each
//     process.
//   - Bound fn with Terms.MaxHold if it may hang. With Forbid a run that never returns skips all
//     later ticks. fn must obey its ctx. With Standby a run that ignores it is repeated by another
//     instance, beside the run that hangs.
//   - Give a job that runs more often than once a minute a Terms.Lease below its interval. With
//     Forbid, an instance that is killed blocks the job for a lease, 30 s by default, and all
//     instances skip the ticks in between.
//   - Change MaxLateness, Keep and CatchUp one at a time. The release that ran a tick decides how
//     long the tick is remembered. If another release lets the tick begin later than that, it may
//     run twice. By default it is remembered until an hour after the next tick, so CatchUp can be
//     introduced at any time.
//   - Check the results of Job.OnResult. NotRun, Late, Early and Skipped are ticks that did not
//     run.
//   - Stop in this order: end Run's ctx and wait for Run (or c.Stop), locks.Close, rdb.Close. With
//     AddTo and Standby call locks.Close before you wait for the ctx that c.Stop returns.
//   - Pass the tick's key to downstream systems if an effect must not happen twice.
//
// # Testing
//
// Options.Now gives an instance its own clock. Package locktest has a Locker in the process. This
// package works in testing/synctest bubbles, where a year of ticks takes seconds. Look up the
// outcome of a tick with idempotency.Lookup(ctx, locks, tick.Key()).
//
// # Zones
//
// A spec is in UTC, unless Options.Location (with AddTo: the cron) has another zone, or the spec
// begins with one (CRON_TZ=Europe/Rome 0 7 * * *). If a zone changes its clocks, a time that the
// zone leaves out in spring has no tick on that day. A time that it repeats in autumn has two
// ticks, an hour apart, unless SkipRepeated is set. Both are the behavior of robfig/cron. Choose
// UTC, or a time that is neither left out nor repeated.
//
// # Other schedulers
//
// Other schedulers need only the nominal time. gocron's Locker gets only the job's name. If the
// task itself knows its nominal time, this is the central step of this package:
//
//	o := guard.OnceOptions{Mode: guard.AtMostOnce}
//	guard.Once(ctx, locks, cronmw.Tick{Name: "report", Time: t}.Key(), o, fn)
//
// It does less than this package. fn runs even if it is called early or late, and even beside the
// previous run. A tick that is due while Redis is unavailable is not requested again.
package cronmw
