// Package lockcore provides reentrant, automatically renewed leases on Redis keys, with fencing
// tokens and a fair FIFO wait queue.
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//		"log"
//
//		"github.com/holdfast-go/holdfast/lockcore"
//	)
//
//	func main() {
//		ctx := context.Background()
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{}) // this process only; with Redis: New
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer locks.Close(ctx)
//		lease, err := locks.Acquire(ctx, "account:42", lockcore.Terms{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer func() { fmt.Println("released:", lease.Release(ctx)) }()
//		// Pass lease.Context() and lease.Token() to the work.
//		fmt.Println("held:", lease.Context().Err() == nil)
//	}
//
// [New] returns a Locker whose keys are in Redis. [NewMemory] returns one whose keys are in this
// process only.
//
// Most code uses package guard, which wraps a function in a lease, or a package below middleware,
// which wraps a handler. This package is their foundation.
//
// A lease is the time-limited right to a key. A hold is one call's period of ownership of a key,
// and has one fencing token: a number that grows with every hold. A run is one execution of a
// handler inside a hold: the first run, or a nested one.
//
// A key is free, held, or, in the namespace of [Locker.Claim], done:
//
//	       acquire             complete(record)
//	free ───────────▶ held ─────────────────────▶ done
//	 ▲                 │ ▲                          │
//	 └──── release ────┘ └ renew                    │ keep is over, or Clear
//	 ◀──────────────────────────────────────────────┘
//
// A key is abandoned if its lease expires without a release, or if its holder calls
// [Lease.Abandon]. By default the next call takes the key over, and its [Lease.Abandoned] returns
// true. A [Claim] with AtMostOnce is refused instead.
//
// # Guarantees
//
// The guarantees require one Redis primary that keeps the writes it has acknowledged, and whose
// clock does not jump. The clock of the process must run at the same rate, to within 1 %:
//
//   - Except for shares, at most one hold per key has a context that is not canceled, over all
//     processes with the same Redis and prefix.
//   - A local timer cancels that context at least a tenth of the lease before the server ends the
//     lease, even if the network fails. The timer counts from the moment before the acquire or
//     renewal was sent.
//   - [context.Cause] returns the reason: ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or
//     ErrGivenUp.
//   - Tokens grow with every hold of a key. Shares that are held at the same time have one token.
//   - Tokens start at the server's clock. So they also grow over a deletion, a flush and a
//     failover, unless the new primary's clock is behind by more than the time between the two
//     grants.
//   - A command takes effect at most once, even if it arrives twice or its reply is late or lost.
//     Every script takes the random id of a request.
//   - The calls of one process are served in the order of their arrival, and processes take turns,
//     see Wait queues.
//   - A lost notification delays a waiter by at most 2.5 s. After the holder crashes, waiters get
//     the key within its lease plus 250 ms. A waiter whose last request met an earlier holder may
//     take 2 s longer.
//   - The key is released when the last nested run has returned, never because a ctx was canceled.
//   - Every key in Redis has a TTL.
//
// # Limits
//
// A handler that ignores its ctx can overlap the next holder. So can a process that is paused after
// its last check of ctx, and a write that is already on its way. Only a resource that checks
// fencing tokens rules that out
// (https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html).
//
// A failover may lose a grant. Then two holders may exist until the old primary stops replying, and
// for at most one lease after that. [ReplicaAcks] makes that less likely.
//
// A Redis that evicts keys (any maxmemory-policy but noeviction), or is flushed, forgets the
// holders. The next renewal of a lease detects that, and the lease is lost.
//
// # What you must do
//
//   - Stop when the lease's context ends. Pass the token to each resource where an overlap would do
//     harm.
//   - Release in a defer. Never hand a lease's context to a goroutine that outlives the handler:
//     use [Detach].
//   - Acquire nested keys in one order everywhere, including those that ctx holds already.
//   - Inside a nested call use the ctx of that call, not that of a run around it.
//   - Close the Locker after the workers and before the Redis client.
//   - With Sentinel use a client that serves only the Locker. The Locker cannot make its own
//     clients from a failover client, so your commands could delay its renewals. From a
//     *redis.Client or *redis.ClusterClient it makes its own.
//
// # Testing
//
// Package locktest has a Locker in memory, and a Redis inside the process for several Lockers. It
// makes keys that are held, abandoned or lost, and a network that fails on command. All of it
// except locktest.Run works in testing/synctest bubbles, where an hour takes milliseconds.
//
// # Without Redis
//
// [NewMemory] is for development, tests and services that run as a single instance. Its Locker
// follows the rules of a Locker on Redis, with these differences:
//
//   - It does not exclude other processes and other Lockers. So it does not suit two instances, not
//     even during a rolling deploy, or a cron job that runs on several pods.
//   - The keys end with the process. After a restart or a crash a once key runs again, and no key
//     is abandoned. So it does not suit payments.
//   - Keys and records take at most MemoryOptions.MaxBytes, 64 MiB by default. Beyond it a call for a new
//     key fails with ErrUnavailable, and a record that does not fit is reported as
//     CompletionFailed.
//   - Tokens start at the clock of the machine. They grow over a restart, unless the clock was set
//     back.
//
// ExampleNewMemory selects the backend by configuration. docs/faq.md says where it fits.
//
// # Wait queues
//
// The calls of one process (of one Locker) for a key wait in a local FIFO queue. Only the leader of
// that queue sends requests to Redis. Redis keeps a remote queue, of processes. A release reserves
// the key for the first process for half a second, and Redis notifies that process on its one
// subscription.
//
// Redis gives a grant: a lease and a block of 512 tokens. If other calls of the process wait when a
// holder releases, the next of them gets the key at once, without a command. This hand-off keeps
// the lease. The new hold has the next token, its own ctx and its own MaxHold.
//
// A batch of hand-offs ends after 512 holds, or with the hold during which it becomes 5 ms old.
// Then one script releases the key and requests it again. The next process gets the key, or this
// one if no other process waits. A process in the remote queue waits for about one batch of each
// process before it.
//
// A lease is handed off only if the key is exclusive, and the lease is neither lost, extended nor
// fixed. The next waiter must have the same Terms.Lease and the same Limit. Any other waiter gets
// its own grant in its turn. A hold that lasts about 300 ms after a hand-off is published in Redis. Until then Inspect returns an earlier hold of the batch.
//
// When a key of Claim is done, all its waiters get the record at once.
//
// Terms.MaxWaiting bounds how many calls of a Locker wait for one key. If the holder is known, a
// call beyond that number is refused at once and costs no command. So one hot key cannot occupy a
// process.
//
// Inside a process the order of arrival is guaranteed for all terms: not even a call with NoWait
// overtakes a waiter. Between processes turns are guaranteed: a batch is bounded, and for half a
// second only the first process of the queue can get the reserved key.
//
// An order of arrival over several processes is not guaranteed:
//
//   - A process with a thousand waiters gets as many turns as a process with one, so its calls wait
//     longer.
//   - A process is not in the remote queue while it has no subscription: when it has just begun to
//     wait, or has lost its connection. It sends its request again at the end of the lease, at
//     least every 2 s, and as soon as it has subscribed. Until then other processes may overtake
//     it.
//   - If the holder died, was revoked or lost its lease, the first request to arrive gets the key.
//   - A call that is canceled, or whose Wait is over, leaves the queue and loses its place.
//
// # Nested calls
//
// An Acquire whose ctx carries a hold of its key, by the same Locker, is nested: it is part of that
// hold and sends no command. A hold has a chain of open runs. The first run is the outermost, and
// each further run is nested in the one before.
//
//   - A call whose ctx belongs to the innermost open run enters at once.
//   - A call whose ctx belongs to an outer run waits until the run nested in that one has returned.
//     Such calls wait in FIFO order, for at most Terms.Wait. Then they fail with a [*BusyError]
//     whose field Nested is set.
//   - The ctx of a run that has returned counts as that of the nearest open run around it.
//   - Holds of other keys that ctx carries have no effect.
//
// Nested runs exclude each other. They do not exclude the code of the run around them. So a handler
// that starts goroutines with its ctx must wait for them, or acquire the key again for its own work
// meanwhile. Nested runs act as locks: two goroutines that acquire two keys in different orders
// wait for each other.
//
// The hold ends with its last run. If the first lease is released earlier, the runs inside it go
// on. From then on a call with the ctx of the first run is not nested.
//
// # Shares
//
// [Locker.AcquireShare] gets a share of the key next to others: a reader with Unlimited, a permit
// with a number. [Locker.Acquire] gets the key alone, as a writer. guard.Shared,
// guard.Limited and guard.Exclusive make such calls. Shares and holds of the key alone exclude each
// other:
//
//	the key is              a share waits                      a call for the key alone waits
//	free                    no                                 no
//	held alone              yes                                yes
//	shared, no waiter       if the weights would exceed N      yes
//	shared, with waiters    yes                                yes
//
// The rules of shares:
//
//   - The Limit belongs to the call. Redis stores no number of permits, so a call with
//     another Limit needs no setup. Calls with different Limits are each granted by their own.
//   - Requests are granted in the order of their arrival. The first one that does not fit keeps all
//     behind it waiting. So neither a writer nor a call with a great weight starves. A waiting
//     process that sends nothing for 5 s counts as dead and is dropped.
//   - A phase lasts from the first share to the end of the last one. All shares of a phase have the
//     same Hold.ID and the same token. The token is greater than that of the hold before the phase,
//     and smaller than that of the hold after it. So a fence refuses what was read before a write.
//     The fence does not distinguish two permits of a phase.
//   - Calls of one process for Unlimited that begin within 5 ms use one share. This does not apply
//     to calls with a MinHold, or while a call of this process waits for the key. So a process
//     sends at most 200 such requests a second for a key. They overtake a waiting writer for at
//     most these 5 ms.
//   - Waiting calls of one process may follow each other under one permit for 5 ms, as in a batch
//     of hand-offs.
//   - Each hold of a share has its own ctx and its own MaxHold and Stall. A share whose process has
//     died is free at the end of its lease. It does not make the key abandoned.
//   - A nested call that requests more than the share of its hold fails with [ErrUpgrade] at once.
//     Release the share first.
//   - Shares are for exclusive keys only, not for Claim, and they have no tickets.
//
// # Tickets
//
// [Lease.Ticket] hands a hold to another process, or to a later request. The first [Locker.Adopt]
// with that ticket, within at most 24 h, gets the hold. The key stays held on the way, and no
// waiter gets it. The adopted lease has a greater token. The run of a once key goes on, with the
// same attempt and fingerprint.
//
//   - The hold of the first process ends before Ticket returns the ticket. If Ticket returns an
//     error, there is no ticket and the lease goes on, unless it had ended already. So the two
//     leases never overlap.
//   - A ticket works once. The second Adopt gets [ErrLost], and can acquire the key like any other
//     call.
//   - The hold is not renewed on its way. If it is not adopted in time, the key is abandoned.
//   - Revoke of a hold on its way takes effect when the hold is adopted: Adopt returns ErrRevoked,
//     and the key is abandoned. Until then, or until the end of the ticket, the key stays held.
//   - Calls of the adopting process wait for the adopted hold as for a hold of another process.
package lockcore
