// Package guard runs a function alone or once, across all processes that use the same Redis and
// prefix.
//
// This program keeps its keys in memory. With several processes use [lockcore.New] instead of
// [lockcore.NewMemory]:
//
//	package main
//
//	import (
//		"context"
//		"fmt"
//
//		"github.com/holdfast-go/holdfast/guard"
//		"github.com/holdfast-go/holdfast/lockcore"
//	)
//
//	func main() {
//		ctx := context.Background()
//		locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
//		if err != nil {
//			panic(err)
//		}
//		defer locks.Close(ctx)
//		pay := func(context.Context) error { fmt.Println("pay"); return nil }
//		err = guard.Exclusive(ctx, locks, "account:42", lockcore.Terms{}, pay)
//		fmt.Println("exclusive:", err)
//		for range 2 {
//			outcome, err := guard.Once(ctx, locks, "charge:7", guard.OnceOptions{}, pay)
//			fmt.Println("once:", outcome, err)
//		}
//	}
//
// The functions differ in what they prevent:
//
//   - [Exclusive] prevents two runs of a key at the same time. [ExclusiveAll] does that for several
//     keys.
//   - [Shared] lets readers run next to each other, and prevents a run of Exclusive next to them.
//   - [Limited] prevents more than n runs of a key at the same time. [LimitedAll] does that for several
//     keys.
//   - [Throttled] prevents that runs of a key begin faster than a rate. [Paused] lets none begin
//     for a time, after the resource has refused a call.
//   - [Latest] prevents runs that a later run covers, such as several rebuilds of one index.
//   - [Once] and [OnceValue] prevent a second run of a key within OnceOptions.Keep. A later call
//     returns what was recorded.
//
// The unique jobs of a queue solve another problem: the same job is not in the queue twice. The
// page docs/outcomes.md lists how a call can end, and docs/frameworks.md shows the functions around
// brokers, queues and HTTP frameworks.
//
// # Nesting
//
// Put Exclusive outside and Once inside, because work that waits for the key of Exclusive has not
// begun. With Once outside, its run includes that wait. Then the death of a process abandons the
// keys of all calls that wait, and AtMostOnce does not run work that never began. A Once inside
// does not wait for another run of its key by default, see [OnceOptions].
//
// # Guarantees
//
//   - The function gets a ctx that is canceled before the lease can end.
//   - The key is released when the function has returned or panicked, and never before. [Ticket] is
//     the exception: it transfers the hold to another process.
//   - A nested call for the same key sends no command. Nested calls with the same ctx run one at a
//     time.
//   - A run without a record is never treated as done.
//   - A record is never replaced. Until the end of OnceOptions.Keep a replay returns what the first
//     recorded run returned.
//
// # Limits
//
//   - No lock can rule out a crash between the effect of the function and its record. [Mode]
//     decides what happens then: AtLeastOnce runs the function again, and AtMostOnce returns an
//     error until an operator clears the key.
//   - The limits of package lockcore apply too: a handler that ignores its ctx can overlap the next
//     holder.
//
// # What you must do
//
//   - Choose a Keep that is longer than the time within which the same work may arrive again.
//   - Name the work in the key, not the delivery: "charge:7", not a random ID.
//   - Stop when ctx ends, and return its error or context.Cause(ctx).
//   - Acquire nested keys in the same order everywhere, and the key of Once last. Or acquire
//     several keys of Exclusive at once with [ExclusiveAll].
//   - Pass the ctx of [Detach] to work that the function starts and does not wait for.
//
// # Invalid options
//
// One rule holds for all packages of this module:
//
//   - A constructor that returns a decorator or a KeyFunc panics on nil arguments and on options
//     for which Validate returns an error, as http.ServeMux does. Such options are mistakes in the
//     program. Examples are asynqmw.Once, httpmw.Exclusive and asynqmw.ByJSON. If options come from
//     a file, call Validate first.
//   - A constructor that returns a resource returns an error. Examples are lockcore.New,
//     cronmw.New, asynqmw.NewTicks and tracing.New.
//   - The functions of this package check the arguments of each call and return an error that
//     satisfies errors.Is(err, lockcore.ErrNotRun).
//
// # Testing
//
// Package locktest has Lockers in memory, and keys that are held, abandoned or lost.
package guard
