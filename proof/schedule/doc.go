// Package schedule runs the scripts of backend/redis under random schedules. Two to four processes
// use one key and send commands as lockcore and backend/redis do. Each command may be lost, run
// without its reply, run late, or run several times.
//
//	go -C proof test ./schedule
//	go -C proof test ./schedule -run TestSchedules -args -schedules 100000
//	go -C proof test ./schedule -run TestSchedules -args -seed 4711
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
// transfer holds with tickets and store interim answers. A ticket is delivered once, several
// times, late or never. In others, most requests are for Throttled calls and permits with a rate,
// costs are taken without waiting, and in some of them the server's clock is set back, and later
// forward to the right time. Time often passes until about the end of a lease, a reservation, a record
// or a TTL. A late duplicate arrives less than a minute after it was sent, because ended ids are
// kept for so long. In a Cluster PUBLISH does not count each receiver.
//
// At the end no fault occurs any more. Each waiter must get the key, and the server must keep no
// data.
//
// # Checks
//
// Package rules judges the server. It gets each command that the server runs, in the same order:
//
//   - reply: the server's reply is the rule's reply.
//   - notifications: so are the notifications, except those to a process that does not listen.
//   - state: inspect.lua returns the state of the rules. It is compared after one of 8 commands, and
//     at about the times at which something ends.
//   - TTL: the server keeps each part of the data for as long as the rules say.
//
// The invariants do not use the rules. So they find a mistake that the scripts and the rules have in
// common:
//
//   - holder: a process whose lease is valid by its own clock, counted from its request, holds the
//     key alone, or with others that have shares. No other request is granted meanwhile. The server
//     has the hold.
//   - limit: when a share is granted, the weights of such processes are at most its limit.
//   - token: tokens grow from hold to hold. The shares of a phase have one token.
//   - ended: no request is granted after it has ended.
//   - record: no run begins before the end of a record, no record is replaced, and a replay is the
//     record.
//   - rate, order, idle: see the type rated. They read what the server grants, and no reply needs to
//     arrive.
//   - waits: at the end each waiter gets the key.
//   - left: then the server keeps nothing.
//
// No check depends on the layout of the data in Redis, or on the arguments of the scripts: package
// wire encodes the requests and decodes the replies.
//
// # Speed
//
// A script takes 15 µs on a [Lua], which keeps one Lua state and its own data, and 140 µs on
// miniredis. So the schedules use a Lua. TestLikeMiniredis and TestCommands compare the two. A
// schedule has 43 commands on average. Package rules takes little of its time.
//
// # Limits
//
//   - Only in schedules with rates the clock of the server is set. From then on, the first four
//     invariants and that of records are not judged.
//   - Processes have no fingerprints, and all clocks agree.
//   - A late duplicate is dropped if 15 commands that may have added an ended id ran after it was
//     sent: a key remembers 16 ids.
package schedule
