// Package schedule runs the scripts of backend/redis under random schedules. Two to four processes
// use one key and send commands as lockcore and backend/redis do. Each command may be lost, run
// without its reply, run late, or run several times.
//
//	go test ./internal/schedule
//	go test ./internal/schedule -run TestSchedules -args -schedules 100000
//	go test ./internal/schedule -run TestSchedules -args -seed 4711
//
// A seed fixes a schedule. If a schedule fails, the test prints its seed and a trace without the
// steps that the failure does not need.
//
// # Schedules
//
// A schedule has 60 to 150 steps. In a step one thing happens. Time passes, a late duplicate or a
// reply arrives, or an operator revokes or clears the key. A process crashes, its subscription ends
// or comes back, or a process does one thing. A process requests the key, waits, gives up, renews,
// or hands the key off to its next call. It releases (with or without a cooldown), abandons,
// rotates or completes. It parks or unparks entries, or repeats a withdrawal or a release. In some
// schedules most requests are for shares, with several limits and weights. In others, processes
// hand holds over with tickets and store interim answers. A ticket is delivered once, several
// times, late or never. Time often passes until about the end of a lease, a reservation, a record
// or a TTL. A late duplicate arrives less than a minute after it was sent, because ended ids are
// kept for so long. In a Cluster PUBLISH does not count each receiver.
//
// At the end no fault occurs any more. Each waiter must get the key, and the server must keep no
// data.
//
// # Checks
//
//   - A: one holder at a time. Each process whose lease is valid by its own clock, counted from its
//     request, has the key on the server. No lease is revived.
//   - B: tokens grow from hold to hold. The shares of a phase have one token, and name one phase.
//   - C: no request is granted, or enters the queue, after it has ended, and no other request is
//     refused as ended.
//   - D: a release, a completion, a withdrawal, a revocation or a clear takes effect on the hold
//     that it names, and on no other. A late duplicate of an operator's command has no effect.
//   - E: a grant reports an abandoned hold if and only if the last hold expired or was abandoned.
//     At most once refuses such a key. The runs of a once key are numbered.
//   - F: a command that frees the key notifies the first waiter that listens. The key is reserved
//     for it. A key is busy only if it is held, reserved or cooling, and for as long as the reply
//     says. A key with a queue has its last token. At the end each waiter gets the key.
//   - G: once keys: no run begins before the end of a record, and no record is replaced.
//   - H: each key of the server has a TTL, and none is left at the end.
//   - S: when a share is granted, the weights are at most its limit. Inspect returns their sum.
//     Shares are never beside an exclusive hold (A), and do not overtake the queue (F).
//   - T: a hold is adopted by one process, while it lasts. An interim answer is stored in its own
//     run, and busy replies have it.
//   - P: no parked entry is lost or changes its place, no more are woken than requested, and the
//     replies say whether there may be entries.
//
// The checks use replies, notifications and the state that inspect.lua returns, never the data in
// Redis. protocol.go has all that depends on the arguments of the scripts. So another layout of the
// data needs no other check.
//
// # Speed
//
// A script takes 15 µs on a [Lua], which keeps one Lua state and its own data, and 140 µs on
// miniredis. So the schedules use a Lua. TestLikeMiniredis and TestCommands compare the two. A
// schedule has 37 commands on average and takes 0.7 ms of processor time: two idle cores run
// 2,000,000 schedules in about 15 minutes.
//
// # Limits
//
//   - The clock of the server never jumps back.
//   - Processes have no fingerprints, and all clocks agree.
//   - A late duplicate is dropped if 15 commands that may have added an ended id ran after it was
//     sent: a key remembers 16 ids.
//   - A late interim answer may be stored in a run with the same number, after a record or a clear:
//     runs are then counted from 1 again.
//   - A late duplicate of a clear that was refused may clear the key. clear.lua does not remember
//     it, because a repeat must not report success.
package schedule
