// Package lockcore is a reentrant lease on a key in Redis, kept by one watchdog, with waiting in turns.
//
//	locks, err := lockcore.New(rdb, lockcore.Options{})
//	lease, err := locks.Acquire(ctx, "account:42", lockcore.Terms{})
//	defer lease.Release(ctx)
//	work(lease.Context(), lease.Token())
//
// Most code wants package guard, which does this around a function, or the packages below middleware, which do it around
// a handler. This package is what they stand on.
//
// A key is free, held, or, in the namespace of Claim, done:
//
//	       acquire             complete(record)
//	free ───────────▶ held ─────────────────────▶ done
//	 ▲                 │ ▲                          │
//	 └──── release ────┘ └ renew                    │ keep is over, or Clear
//	 ◀──────────────────────────────────────────────┘
//
// A held key whose lease ran out without a release, or whose holder said that it does not know (Abandon), is abandoned: the next holder is told, or refused, by choice.
//
// # Guarantees
//
// With one Redis primary that keeps what it has acknowledged and whose clock does not jump, and a process whose clock
// runs at the same rate to within 1 %:
//
//   - At most one un-canceled lease context exists per key, over all processes with the same Redis and prefix.
//   - That context is canceled at least a tenth of the lease before the server ends the lease, whatever the network does.
//     A local timer does that; it counts from the moment before the acquire or renewal was sent.
//   - context.Cause says why: ErrLost, ErrMaxHold, ErrStalled, ErrRevoked, ErrGivenUp.
//   - Tokens grow with every hold of a key. The floor is the server's clock, so that they also grow over a deletion, a
//     flush and a failover, unless the new primary's clock is behind by more than the time between the two grants.
//   - A command that is sent twice, answered late or not at all counts once: every script is keyed by the random id of a grant.
//   - The calls of one process are served in the order in which they came, and processes take turns, see below. A message
//     that is lost costs at most 2.5 s; a holder that dies costs at most its lease and 250 ms, and 2 s
//     more if whoever waits has last asked under an earlier holder.
//   - The key is given back when the last nested run has returned, never because a ctx was canceled.
//   - Every key in Redis has a TTL.
//
// # What it cannot promise
//
// A handler that ignores its ctx, a process that is paused after its last check and a write that is already on its way
// can overlap the next holder. Only a token that the resource checks excludes that
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html). A failover may lose a grant: then two
// holders exist until the old primary has stopped answering, and for at most one lease more. A Redis that evicts keys (any maxmemory-policy but noeviction) or is flushed forgets
// who holds what; a holder learns of that with its next renewal.
//
// # Turns
//
// The calls of one process (of one Locker) on a key stand in one line, first come first served, and only the first of them asks
// Redis. Redis has a line too, of processes: it wakes the first of them, and nobody else, by a message on the one subscription that a
// process has while it waits, and keeps the key for it for half a second. What Redis grants is a lease and a block of 512 tokens.
//
// When a holder releases and others of its process stand in line, the next of them gets the key at once, without a command: the same lease, the
// next token, a ctx and a MaxHold of its own. Such a streak ends with the hold in which it is 5 ms old, or after 512 holds, whichever is
// first. Then the key is released and asked for again in one script: it goes to the next process, or comes straight back if none waits.
// A process in Redis's line waits for about one streak of each process before it.
//
// Handed over is what fits: an exclusive key, to a call with the same Lease, while the lease is neither lost, extended nor fixed (NoRenew). Any other call
// in line gets a grant of its own when it is its turn. A record of Claim is handed to all in line at once. Redis
// is told of a hand-over after about 300 ms if the hold lasts that long; until then Inspect names an earlier one of the streak.
//
// Promised: inside a process the order of arrival, whatever the terms, and also before newcomers that do not wait. Between processes
// turns: a streak is bounded, and a key that was reserved for a process in line goes to nobody else for half a second.
//
// Not promised: an order of arrival over several processes. A process with a thousand calls in line gets as many turns as one with one, so
// its calls wait longer. A process that is not subscribed, because it has just begun to wait or has lost its connection, does not
// stand in Redis's line: it asks when the lease is over, at least every 2 s and as soon as it is subscribed, and may be overtaken
// until then. Whoever finds the key free takes it, also when the holder before died, was revoked or lost its lease: then whoever asks first is next. A call
// that is canceled, or whose Wait is over, leaves the line and loses its place.
//
// # Nested calls
//
// An Acquire whose ctx carries a hold of its key, by the same Locker, is nested: it is part of that hold and sends no
// command. A hold has a chain of open runs: the first one and those nested in it, one in the other. A call whose ctx
// belongs to the innermost open run enters at once. A call whose ctx belongs to an outer run waits until the run nested
// in that one has returned. Such calls wait in FIFO order, for at most Terms.Wait, and then fail with a *BusyError
// whose field Nested is set. Holds of other keys in between do not count. The ctx of a run that has returned counts as
// that of the nearest open run around it.
//
// Nested runs exclude each other. They do not exclude the code of the run around them: a handler that starts goroutines
// with its ctx must wait for them, or acquire the key again for its own work meanwhile. Nested runs are locks: two
// goroutines that take two keys in different orders wait for each other.
//
// The hold ends with its last run. If the first lease is released earlier, the runs inside it go on. Then calls with
// its ctx are no longer nested.
//
// # What you must do
//
//   - Stop when the lease's context ends, and pass the token to what you write to, where an overlap would do harm.
//   - Release in a defer. Never hand a lease's context to a goroutine that outlives the handler: Detach it.
//   - Take nested keys in one order everywhere, also those that ctx holds already.
//   - Inside a nested call use the ctx of that call, not that of a run around it.
//   - Close the Locker after the workers and before the Redis client.
//   - With Sentinel give the Locker a client of its own: it cannot make one from a failover client, and your own
//     commands could hold up its renewals. From a *redis.Client or *redis.ClusterClient it makes its own.
//
// # Testing
//
// Package locktest has a Locker on a Redis inside the process, held, abandoned and lost keys, and a network that fails on
// command. All of it but locktest.Run works in testing/synctest bubbles, where an hour takes milliseconds.
package lockcore
