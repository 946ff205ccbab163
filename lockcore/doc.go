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
// This package is the foundation of packages that wrap a function or a handler in a lease, and most
// programs use one of those. [Locker] describes the wait queues, [Locker.Acquire] nested calls,
// [Limit] shares, and [Lease.Ticket] how a hold goes on in another process.
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
// [Lease.Abandon]. By default the next call takes the key over, see [Lease.Abandoned].
//
// # Guarantees
//
// They require one Redis primary that keeps acknowledged writes, and whose clock does not jump. The
// clock of the process must run at the same rate, to within 1 %:
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
//   - The calls of one process are served in the order of their arrival, and processes take turns,
//     see [Locker].
//   - A lost notification delays a waiter by at most 2.5 s. After the holder crashes, waiters get
//     the key within its lease plus 250 ms.
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
// for a lease after that. [ReplicaAcks] makes that less likely.
//
// A Redis that evicts keys, or is flushed, forgets the holders. The next renewal detects that, and
// the lease is lost.
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
//
// Package locktest has Lockers, faults and dead holders for tests.
package lockcore
