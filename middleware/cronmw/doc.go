// Package cronmw runs a cron job on one of many instances: each tick once.
//
//	jobs, err := cronmw.New(locks, cronmw.Options{})
//	err = jobs.Add("report", "0 7 * * *", cronmw.Job{}, func(ctx context.Context, t cronmw.Tick) error {
//		return report(ctx, t.Time)
//	})
//	err = jobs.Run(ctx)
//
// Every instance does this; for a robfig/cron that you already have there is [AddTo].
//
// A lock on the job's name is no singleton: where the job is shorter than the clocks are apart, the second instance finds
// the lock free again and the job runs twice. And a leader that is replaced misses ticks. Here the key is the tick: the
// job's name and the nominal time that the schedule says, claimed with guard.Once. The clocks decide only who asks first.
//
// # Guarantees
//
// Under the conditions of package lockcore, for instances that have added the same name, spec and zone:
//
//   - Each tick is decided once, whatever the clocks of the instances say: it runs, or is skipped because an earlier run
//     goes on, or MinHold keeps the job's key after it.
//   - fn never begins before the tick's time, nor, except as a standby, more than MaxLateness after it, by the clock of
//     Redis. The time of the grant is read from the token, which is that clock in µs; fn begins a round trip later. If
//     the server's clock is set back it errs towards late.
//   - What a tick came to is remembered for longer than the time in which it may begin: that is why no clock can run it
//     twice.
//   - Without Standby, fn is begun at most once for each tick. With it, again if the instance died, one at a time, and fn
//     can see that (guard.Attempt with Tick.Key).
//   - With Forbid no two runs of a job overlap, wherever they run.
//   - A tick that is due while Redis is away is asked for again until it would be too late, or the next one is due. An
//     instance that had the tick, but could not begin because Redis went away, begins when it is back, also after more
//     than a lease. If it was not even told that it has the tick, and Redis is away for longer than a lease, nobody knows
//     that it did not begin: the tick counts as that of an instance that died.
//   - A failure is what the tick came to: nobody runs it again, unless fn marked it with guard.NoEffect; then a standby,
//     or an instance that asks in time, runs it. A panic is a failure, and so is a run that MaxHold, Stall or an
//     operator (Revoke) ended. A run that failed because it was ended by Options.CancelOnStop, by a lost lease or by the
//     end of Close is not, to a standby.
//   - fn gets the nominal time that was due, also if its goroutine starts late.
//
// # What it cannot promise
//
// That a tick runs: all instances may be away for longer than MaxLateness (see CatchUpLatest), or, without Standby, the
// one that has it dies. That fn's effect happens once: with Standby a run that died may have had it. Punctuality: a tick
// begins when an instance asks, and one whose clock is ahead has it until its time has come (if it is stopped before, the
// others ask once more at that time). A process that is paused for longer than its lease may overlap the next run, see
// package lockcore.
//
// # Zones
//
// A spec is in UTC unless Options.Location (AddTo: the cron) has another zone, or the spec has its own (CRON_TZ=Europe/Rome 0 7
// * * *). In a zone that changes its clocks a time that is left out in spring has no tick on that day, and one that is
// repeated in autumn has two, an hour apart, unless SkipRepeated. Both are robfig/cron's ways. Choose UTC, or a time that
// neither happens to.
//
// # What you must do
//
//   - Give the job the same name, spec and zone everywhere. A renamed job is a new job: during a deploy both names run, a
//     run under the old name does not hold one under the new name up, and it has nothing to catch up with. While two
//     releases have different specs, each runs its own ticks.
//   - Use Every, not @every, which counts from the start of each process; it is refused.
//   - Bound fn with Terms.MaxHold where it may hang: with Forbid a run that never returns skips all ticks after it. It must
//     obey its ctx: with Standby one that does not is begun again elsewhere, beside the one that hangs.
//   - Give a job that runs more often than once a minute a Terms.Lease below its interval: with Forbid an instance that is
//     killed holds the job up for a lease, 30 s by default, and the ticks in between are skipped for all instances.
//   - Change MaxLateness, Keep and CatchUp one at a time: a tick is remembered for as long as the release that ran it
//     says, and may run again where another release lets it begin later than that. By default it is remembered until an
//     hour after the next, which lets CatchUp be introduced at any time.
//   - Listen to Job.OnResult: NotRun, Late, Early and Skipped are ticks that did not run.
//   - Close in this order: end Run's ctx and wait for Run (or c.Stop), locks.Close, rdb.Close. With AddTo and Standby
//     close locks before waiting for the ctx that c.Stop returns.
//   - Put the tick's key downstream where an effect must not happen twice.
//
// Other schedulers need no more than the nominal time. gocron's Locker is given only the job's name; where the task
// itself knows its time,
//
//	o := guard.OnceOptions{Mode: guard.AtMostOnce}
//	guard.Once(ctx, locks, cronmw.Tick{Name: "report", Time: t}.Key(), o, fn)
//
// is the heart of this package. What is left out then: fn runs however early or late it is called, beside the run before,
// and a tick that is due while Redis is away is not asked for again.
//
// # Testing
//
// Options.Now gives an instance a clock of its own. Package locktest has a Locker in the process, and all of this works
// in testing/synctest bubbles, where a year of ticks takes seconds. What a tick came to can be looked up:
// idempotency.Lookup(ctx, locks, tick.Key()).
package cronmw
