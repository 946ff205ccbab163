// Package slogobs writes the events of a lockcore.Locker to a log/slog logger.
//
// This program logs that the second call did not run:
//
//	package main
//
//	import (
//		"context"
//		"log/slog"
//
//		"github.com/holdfast-go/holdfast/guard"
//		"github.com/holdfast-go/holdfast/lockcore"
//		"github.com/holdfast-go/holdfast/tracing/slogobs"
//	)
//
//	func main() {
//		ctx := context.Background()
//		observer := slogobs.New(slog.Default(), slogobs.Options{})
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{Observer: observer})
//		if err != nil {
//			panic(err)
//		}
//		defer locks.Close(ctx)
//		terms := lockcore.Terms{Name: "account", Wait: lockcore.NoWait}
//		_ = guard.Exclusive(ctx, locks, "account:42", terms, func(context.Context) error {
//			return guard.Exclusive(ctx, locks, "account:42", terms, func(context.Context) error { return nil })
//		})
//	}
//
// The package is for programs without OpenTelemetry, and does not import it. To use both, join the
// Observers:
//
//	lockcore.Options{Observer: event.Join(traces, slogobs.New(slog.Default(), slogobs.Options{}))}
//
// A Locker without an Observer already logs its worst problems to slog.Default(). This package logs
// all events, to a logger of your choice.
//
// # Records
//
// Each message begins with "holdfast: ".
//
//	lease lost                    error  Redis no longer had the lease, or did not reply until the lease ended
//	lease ended early             warn   max_hold, stalled, revoked, replaced, given_up
//	handler ignores its context   warn   the handler continues after its lease or the caller's ctx has ended
//	renewal failed                warn   no reply; once until a renewal succeeds
//	record not stored             error  the work is done, and the next call may run it again
//	record stored late            info   stored asynchronously, after Redis did not reply at first
//	outcome unknown               error  the handler abandoned the key: guard.Unknown, a panic with AtMostOnce, or a takeover that failed
//	release failed                info   no reply; the key is free at the end of its lease at the latest
//	took over                     warn   a once key that the previous holder abandoned: its work may be half done
//	refused                       info   busy, closed
//	                              warn   mismatch
//	                              error  abandoned, unavailable, bad_record, unsupported
//	                              debug  canceled, bad_ticket, and all other outcomes
//	job lost to a conflict        error  the key was busy on the last attempt of the job
//	no key or limit               warn   a job or request has no key, or its LimitFunc returned no limit
//	another payload               warn   a done key was called with another payload, and replayed
//	tick abandoned                error  an instance died during a cron tick, and no other instance runs the tick
//	rerun skipped                 warn   asynq delivered a parked task again less than 30 s after its completion, and it did not run; to run it by hand, wait
//	cleanup failed                warn   Redis did not confirm withdrawals or releases: a key may stay held until its lease ends
//	server failed                 warn   one of several servers does not reply in time; "server replies again" is info
//	lease ended by force          warn   this process called ForceClear
//	paused                        info   this process called Pause, also by guard.Paused; "pause ended" is info too
//	restricted                    info   this process called Restrict; "restriction ended" is info too
//	record does not decode        error
//	misconfigured                 error
//	waiting, granted, released, replayed, transferred
//	                              debug
//	handler failed                debug  only the class of the error: the program logs the errors of its handlers
//	parked, unparked              debug  a task waits for its key outside of its worker; it got the key, or ended
//	replaced                      debug  a task of asynqmw.Latest ended without a run, because a newer one was delivered
//
// For each message and each Terms.Name, at most 10 records a second are written. The next record
// after that second has the attribute "suppressed": the number of records that were not written.
//
// # Attributes
//
// A record has those of these attributes that are known:
//
//   - kind and name
//   - limit, for a share: -1 if it is unlimited
//   - key_digest: the first 8 bytes of the SHA-256 of the key in hex, as on spans
//   - holder; holder_locker: the UUID of the holder's Locker while its hold lasts; locker: the UUID
//     of the Locker that made the call. If both UUIDs are equal, the holder is a call of the same
//     process.
//   - waited, held, queue, token, attempt, renewals, outcome, cause, leases, problem, error_class,
//     error
//   - for parked tasks: tasks, the number of parked tasks of the key; oldest, the age of the oldest
//   - for parked: before, again and delay; for unparked: parked; see event.Parked and
//     event.Unparked
//   - for paused and restricted: for and reason; for restricted: limit, n, per and burst; see
//     event.Paused and event.Restricted
//
// The records of a call are logged with its ctx, so a slog.Handler can add trace IDs.
//
// # Guarantees
//
//   - The key is written only with [Options.ExposeRawKeys], because keys often name people or
//     accounts.
//   - An error is written as its text, in which the digest replaces the key. If the Observer does
//     not know the key, only the class of the error is written.
package slogobs
