// Package tracing shows in OpenTelemetry what a [lockcore.Locker] does: what ran, what waited, who
// blocked it, what was lost. Hand [New]'s Observer to lockcore.Options; nothing else of holdfast
// imports OpenTelemetry.
//
// # Spans
//
// One span for each guarded run, from the call to the end of the run, named by kind and Terms.Name:
// "exclusive account", "limited partner", "once charge". It is the parent of the handler's spans. A call that waited
// has a child span "acquire", from its place in the wait queue to the grant or the refusal. Both
// link to the holder's span if its trace context, which is stored with the key, was known by then.
// An invalid trace context is not linked. A run whose record Redis did not confirm at once has a
// child span "complete", from the end of the handler until the record is stored, or given up: then
// its status is Error. There is no span for a call on a key that ctx already holds, a call with
// invalid arguments, and a call whose ctx has already ended.
//
//	holdfast.kind            string  exclusive, once; shared or limited for a call that gets a share
//	holdfast.name            string  Terms.Name
//	holdfast.backend         string  redis, or memory (this process only)
//	holdfast.locker          string  UUID of the Locker that made the call, see lockcore.Locker.ID
//	holdfast.key.digest      string  first 8 bytes of the SHA-256 of the key, in hex
//	holdfast.key             string  the key; only with Options.ExposeRawKeys
//	holdfast.outcome         string  see below
//	holdfast.wait.duration   double  s, from the call to its outcome or the grant
//	holdfast.contended       bool    the call waited for another holder
//	holdfast.queue.length    int     longest wait queue that the call saw; on "acquire": at its start
//	holdfast.attempt         int     which run of the key this is, or was, from 1
//	holdfast.takeover        bool    the previous holder abandoned the key
//	holdfast.limit           int     Terms.Limit; only if the kind is limited
//	holdfast.token           int     fencing token
//	holdfast.hold.duration   double  s, from the grant to the handler's end
//	holdfast.renewals        int     renewals that succeeded
//	holdfast.renewal_errors  int     renewals that got no reply
//	holdfast.cause           string  why the lease was lost: lost, max_hold, stalled, revoked, given_up; only on a lost one
//	holdfast.stale           bool    at the end Redis no longer knew the hold; only if so
//	error.type               string  only if the status is Error
//
// error.type follows the semantic conventions: what the error's method ErrorType() string returns,
// else a class of this module (lost, max_hold, unavailable, …), canceled, timeout, panic, else the
// Go type at the end of the error's chain, else _OTHER.
//
// Span events: "holdfast.lost" and "holdfast.overrun" (the handler ran on after its ctx had ended)
// with holdfast.cause, "holdfast.renewal_failed" and "holdfast.release_failed" (no reply; the key
// is free at the end of its lease at the latest) with error.type.
//
// # Outcomes
//
//	completed    the handler ran and returned nil
//	took_over    the same, for a key that the previous holder had abandoned
//	handed_over  the handler handed its hold to another process, see lockcore.Lease.Ticket
//	bad_ticket   the ticket of an Adopt was used, late, revoked or malformed
//	failed       the handler returned an error, panicked, or under httpmw.Idempotent answered what is not recorded, such as a 500
//	replayed     the key was done
//	busy         another holder has the key, or had it until the caller gave up
//	mismatch     the key was used with another fingerprint
//	canceled     the caller gave up first
//	abandoned    an earlier run abandoned the key, and at most once was asked for
//	unavailable  Redis did not answer, or cannot serve
//	closed       the Locker was closed while the call waited
//	bad_record   the key is done, but its record does not decode
//	lost         the handler ran, but the lease ended before it returned; holdfast.cause says why
//	unknown      the handler ran and abandoned its key: a panic under at most once, guard.Unknown, or no effect after a takeover
//
// The span's status is Error, with error.type, for failed and from abandoned on; otherwise it is
// not set. The text of an error is in no span or metric, because it may name the key or a host.
// httpmw.Exclusive does not see the status that a handler writes. There a 500 counts as completed;
// the HTTP server's own span and metrics have the status.
//
// # Metrics
//
//	holdfast.wait.duration       histogram        s              kind name
//	holdfast.hold.duration       histogram        s              kind name
//	holdfast.acquisitions        counter          {acquisition}  kind name outcome  calls that have ended
//	holdfast.contentions         counter          {acquisition}  kind name          of these, those that waited for another holder
//	holdfast.takeovers           counter          {lease}        kind name          leases of abandoned keys, however their runs end
//	holdfast.lease.held          up-down counter  {lease}        kind name
//	holdfast.lease.lost          counter          {lease}        kind name cause
//	holdfast.overruns            counter          {lease}        kind name
//	holdfast.completion.failed   counter          {record}       kind name          records that could not be stored
//	holdfast.renewals            counter          {renewal}      result: kept, gone, failed
//	holdfast.conflict.lost       counter          {job}          name               conflicts on a job's last attempt
//	holdfast.no_key              counter          {job}          name               jobs and requests without a key
//	holdfast.payload_mismatches  counter          {acquisition}  name               done keys that were called with another payload
//	holdfast.tick.abandoned      counter          {tick}         name               cron ticks whose instance died and which no other instance ran
//	holdfast.parked              counter          {task}         kind name again    times that a task was parked; again is false for its first time, true if it came back to a busy key
//	holdfast.parked.duration     histogram        s              kind name          from the first parking of a task until it got its key or ended
//	holdfast.parked.tasks        gauge            {task}         kind name          see below
//	holdfast.parked.oldest       gauge            s              kind name          see below
//	holdfast.bad_records         counter          {record}
//	holdfast.cleanup.failed      counter          {lease}                           withdrawals and releases that Redis did not confirm
//	holdfast.group.calls         histogram        {call}                            calls in a group
//	holdfast.group.wait          histogram        s                                 how long the first call of a group waited
//	holdfast.misconfigured       counter          {problem}
//
// Each label has the prefix holdfast. too. Units are those of UCUM. The number of time series grows
// with the number of your names only: keys, hosts, tasks and Lockers are never labels. A run counts
// in holdfast.lease.held while it goes on, and in holdfast.acquisitions when it has ended.
//
// For a key that is shared, holdfast.lease.held is the number of its shares in this process, without
// their weights. A parked task counts under the kind of its key, which is exclusive for a share too.
//
// A class is a kind and a name. Its counters exist with the value 0 from its first call on, for
// every outcome and cause that the kind can have. Counters without a name exist from New on. So
// rate and increase also see the first event of a class, unless that belongs to the first call of
// the class.
//
// The instrumentation scope has the version of this module, and the schema URL of the semantic
// conventions that error.type follows.
//
// # Parked tasks
//
// A task is parked when it waits for a busy key outside of its worker, see asynqmw.Configure. Each
// event about a parked task has the number of parked tasks of its key, and the time since the
// oldest was parked for the first time. holdfast.parked.tasks is the sum over the keys of the
// class, and holdfast.parked.oldest is the age of the oldest task:
//
//   - A process reports the last event of each key for which it parked or ran tasks. Processes that
//     share keys report the same tasks: take the maximum over them, not the sum.
//   - A process gets no event when another process runs a task. So it drops the values of a key
//     when the tasks that it parked must have come back: 30 s after the end of their delays. Until
//     then it reports the number and the age of the last event. The age does not grow meanwhile.
//   - A task that comes back in vain is parked again, and reports its key anew. So a task that
//     stays parked stays visible, with an age that is at most one delay old.
//   - A process reports at most 4,096 keys at a time. A class is reported from its first parked
//     task on, and is 0 without parked tasks.
//   - If two Observers of one MeterProvider both have parked tasks of a class, only the values of
//     one of them are reported.
package tracing
