// Package tracing shows in OpenTelemetry what a [lockcore.Locker] does: what ran, what waited, who blocked it, what was
// lost. Hand [New]'s Observer to lockcore.Options; nothing else of holdfast imports OpenTelemetry.
//
// # Spans
//
// One span for each guarded run, from the call to the end of the run, named by kind and Terms.Name: "exclusive
// account", "once charge". It is the parent of the handler's spans. A call that waited has a child span "acquire", from
// its place in line to the grant or the refusal. Both link to the span of the holder, if it was known by then: its trace context is stored
// with the key, and who blocked me is one click. An invalid one is not linked. A call that ctx already holds the key for,
// that is wrong in itself, or whose ctx has ended before, has no span.
//
//	holdfast.kind           string  exclusive, once
//	holdfast.name           string  Terms.Name
//	holdfast.key.digest     string  first 8 bytes of the SHA-256 of the key, in hex
//	holdfast.key            string  the key; only with Options.ExposeRawKeys
//	holdfast.outcome        string  see below
//	holdfast.wait.duration  double  s, from the call to its outcome or the grant
//	holdfast.contended      bool    the call stood in line
//	holdfast.queue.length   int     longest line that the call saw; on "acquire": at its start
//	holdfast.attempt        int     which run of the key this is, or was, from 1
//	holdfast.takeover       bool    the holder before never said how it ended
//	holdfast.token          int     fencing number
//	holdfast.hold.duration  double  s, from the grant to the handler's end
//	holdfast.renewals       int     renewals that succeeded
//	holdfast.renew_errors   int     renewals that got no answer
//	holdfast.cause          string  why the lease was lost: lost, max_hold, stalled, revoked, given_up; only on a lost one
//	holdfast.stale          bool    at the end Redis no longer knew the hold; only if so
//	error.type              string  only if the status is Error
//
// Span events: "lost" and "overrun" (the handler ran on after its ctx had ended) with holdfast.cause, "renew
// failed", "release failed" and "completion failed" with error.type.
//
// # Outcomes
//
//	ran          the handler ran
//	took over    the handler ran, after a holder that never said how it ended
//	replayed     the key was done
//	busy         another holder has the key, or had it until the caller gave up
//	mismatch     the key was used with another fingerprint
//	canceled     the caller gave up first
//	abandoned    an earlier run never said how it ended, and at most once was asked for
//	unavailable  Redis did not answer, or cannot serve
//	closed       the Locker was closed while the call waited
//	bad record   the key is done, but its record does not decode
//	lost         the handler ran, but the lease ended before it returned; holdfast.cause says why
//	unknown      the handler ran and left its key abandoned: a panic under at most once, guard.Unknown, or no effect after a takeover
//
// From abandoned on the span's status is Error, with error.type; before it is not set. An error that the handler returns
// is the business of the spans around and inside it. The text of an error is nowhere, since it may name the key or a host.
//
// # Metrics
//
//	holdfast.wait.duration       histogram        s             kind name
//	holdfast.hold.duration       histogram        s             kind name
//	holdfast.acquisitions        counter          {call}        kind name outcome   calls that came to an outcome
//	holdfast.contentions         counter          {call}        kind name           of these, those that stood in line
//	holdfast.leases.held         up-down counter  {lease}       kind name
//	holdfast.leases.lost         counter          {lease}       kind name cause
//	holdfast.overruns            counter          {lease}       kind name
//	holdfast.completions.failed  counter          {record}      kind name           records that could not be stored
//	holdfast.renewals            counter          {renewal}     result: kept, gone, failed
//	holdfast.conflicts.lost      counter          {job}         name                conflicts on a job's last attempt
//	holdfast.no_key              counter          {job}         name                jobs and requests without a key
//	holdfast.payload_mismatches  counter          {call}        name                done keys that were called with another payload
//	holdfast.bad_records         counter          {record}
//	holdfast.misconfigured       counter          {problem}
//
// Each label has the prefix holdfast. too. The number of time series is that of your names times the above: keys, hosts
// and tasks are never labels. A run is in holdfast.acquisitions when it has ended, in holdfast.leases.held while it goes on.
package tracing
