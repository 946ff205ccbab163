// Package lockcore provides reentrant, automatically renewed leases on Redis keys, with fencing
// tokens and a fair FIFO wait queue.
//
//	locks, err := lockcore.New(rdb, lockcore.Options{})
//	lease, err := locks.Acquire(ctx, "account:42", lockcore.Terms{})
//	defer lease.Release(ctx)
//	work(lease.Context(), lease.Token())
//
// Most code uses package guard, which wraps a function in a lease, or a package below middleware,
// which wraps a handler. This package is their foundation.
//
// A key is free, held, or, in the namespace of Claim, done:
//
//	       acquire             complete(record)
//	free ───────────▶ held ─────────────────────▶ done
//	 ▲                 │ ▲                          │
//	 └──── release ────┘ └ renew                    │ keep is over, or Clear
//	 ◀──────────────────────────────────────────────┘
//
// A key is abandoned if its lease expires without a release, or if its holder calls Abandon. By
// default the next caller of Claim takes it over and learns that. With AtMostOnce the next caller
// is refused.
//
// # Guarantees
//
// They hold with one Redis primary that keeps what it has acknowledged and whose clock does not
// jump, and with a process whose clock runs at the same rate to within 1 %:
//
//   - At most one un-canceled lease context exists per key, over all processes with the same Redis
//     and prefix.
//   - That context is canceled at least a tenth of the lease before the server ends the lease,
//     whatever the network does. A local timer does that. It counts from the moment before the acquire
//     or renewal was sent.
//   - context.Cause returns the reason: ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp.
//   - Tokens grow with every hold of a key. They start at the server's clock. So they also grow
//     over a deletion, a flush and a failover, unless the new primary's clock is behind by more than
//     the time between the two grants.
//   - A command that is sent twice, gets a late reply or gets none counts once: every script takes
//     the random id of a request.
//   - The calls of one process are served in the order of their arrival, and processes take turns,
//     see below. A lost message costs at most 2.5 s. After a crash of the holder, waiters get the key
//     within its lease and 250 ms. A waiter that last asked under an earlier holder may take 2 s
//     longer.
//   - The key is released when the last nested run has returned, never because a ctx was canceled.
//   - Every key in Redis has a TTL.
//
// # What it cannot promise
//
// Three things can overlap the next holder: a handler that ignores its ctx, a process that is
// paused after its last check, and a write that is already on its way. Only a resource that checks
// fencing tokens rules that out
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
// A failover may lose a grant. Then two holders exist until the old primary has stopped responding,
// and for at most one lease more. A Redis that evicts keys (any maxmemory-policy but noeviction) or
// is flushed forgets its holders. A holder learns that with its next renewal.
//
// # Wait queues
//
// The calls of one process (of one Locker) for a key wait in a local FIFO queue. Only its leader
// talks to Redis. Redis has a remote queue, of processes. It sends a message to the first of them,
// on the one subscription of that process, and reserves the key for it for half a second. Redis
// grants a lease and a block of 512 tokens.
//
// If other calls of the process wait when a holder releases, the next of them gets the key at once,
// without a command: the same lease, the next token, its own ctx and its own MaxHold. That is a
// hand-off. A batch of hand-offs ends after 512 holds, or with the hold during which it becomes 5
// ms old. Then one script releases the key and requests it again: the next process gets it, or this
// one if no other process waits. A process in the remote queue waits for about one batch of each
// process before it.
//
// A lease is handed off only if the key is exclusive, the next caller wants the same Lease, and the
// lease is neither lost, extended nor NoRenew. Any other waiter gets its own grant in its turn. A
// record of Claim goes to all waiters at once. A hold that lasts about 300 ms after a hand-off is
// published in Redis. Until then Inspect returns an earlier hold of the batch.
//
// Inside a process the order of arrival is guaranteed, whatever the terms, also before new calls
// that do not wait. Between processes turns are guaranteed: a batch is bounded, and no other
// process gets a reserved key for half a second.
//
// An order of arrival over several processes is not guaranteed:
//
//   - A process with a thousand waiters gets as many turns as a process with one, so its calls wait
//     longer.
//   - A process without a subscription is not in the remote queue, because it has just begun to
//     wait or has lost its connection. It asks Redis at the end of the lease, at least every 2 s, and
//     as soon as it has subscribed. Other processes may overtake it until then.
//   - If the holder died, was revoked or lost its lease, the first process to ask gets the key.
//   - A call that is canceled, or whose Wait is over, leaves the queue and loses its place.
//
// # Nested calls
//
// An Acquire whose ctx carries a hold of its key, by the same Locker, is nested: it is part of that
// hold and sends no command. A hold has a chain of open runs: the first one and those nested in it,
// one in the other. A call whose ctx belongs to the innermost open run enters at once. A call whose
// ctx belongs to an outer run waits until the run nested in that one has returned. Such calls wait
// in FIFO order, for at most Terms.Wait, and then fail with a *BusyError whose field Nested is set.
// Holds of other keys in between do not count. The ctx of a run that has returned counts as that of
// the nearest open run around it.
//
// Nested runs exclude each other. They do not exclude the code of the run around them: a handler
// that starts goroutines with its ctx must wait for them, or acquire the key again for its own work
// meanwhile. Nested runs are locks: two goroutines that take two keys in different orders wait for
// each other.
//
// The hold ends with its last run. If the first lease is released earlier, the runs inside it go
// on. Then calls with its ctx are no longer nested.
//
// # What you must do
//
//   - Stop when the lease's context ends. Pass the token to each resource where an overlap would do
//     harm.
//   - Release in a defer. Never hand a lease's context to a goroutine that outlives the handler:
//     use Detach.
//   - Acquire nested keys in one order everywhere, also those that ctx holds already.
//   - Inside a nested call use the ctx of that call, not that of a run around it.
//   - Close the Locker after the workers and before the Redis client.
//   - With Sentinel use one client only for the Locker. The Locker cannot make its own clients from
//     a failover client, and your commands could delay its renewals. From a *redis.Client or
//     *redis.ClusterClient it makes its own.
//
// # Testing
//
// Package locktest has a Locker on a Redis inside the process, held, abandoned and lost keys, and a
// network that fails on command. All of it except locktest.Run works in testing/synctest bubbles,
// where an hour takes milliseconds.
package lockcore
