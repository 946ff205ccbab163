// Package locktest helps to test code that uses holdfast, in memory or on a Redis inside the test
// process.
//
//	package orders_test
//
//	import (
//		"errors"
//		"testing"
//
//		"github.com/holdfast-go/holdfast/lockcore"
//		"github.com/holdfast-go/holdfast/locktest"
//	)
//
//	func TestBusy(t *testing.T) {
//		locks := locktest.New(t)                         // a Locker in memory, for this test only
//		release := locktest.Hold(t, locks, "account:42") // another holder has the key
//		_, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: lockcore.NoWait})
//		if !errors.Is(err, lockcore.ErrBusy) {
//			t.Errorf("error is %v, want ErrBusy", err)
//		}
//		release()
//	}
//
// The page docs/testing.md has a test for each kind of handler.
//
// # What it does
//
//   - [New] returns a Locker in memory. [Bubble] does so in a testing/synctest bubble, where a
//     lease of an hour expires at once.
//   - [NewServer] starts a Redis in the process, without a socket, which several Lockers can share.
//   - [Hold] and [HoldOnce] make a key busy, [Abandon] leaves it abandoned, and [Lose] makes a
//     handler lose its keys.
//   - [NewFaults] is a network that cuts a Redis off on command, with errors or in silence.
//   - [Recorder] records the events of a Locker.
//   - [Run] checks that your own Redis keeps the promises of holdfast, with the topology, provider,
//     user rights and client of production.
//
// # Limits
//
//   - Other Lockers do not see the keys of a Locker in memory. Use [NewServer] for several Lockers
//     that exclude each other.
//   - The server of [NewServer] is miniredis. Only [Run] shows how your production Redis behaves.
//   - Run does not work in a bubble. Everything else but Bubble works in your own bubble, with the
//     rules of [Bubble].
//
// # What you must do
//
//   - Release every lease before the test ends. A lease that is not released within 1 s after that
//     fails the test.
//   - In a bubble, end every goroutine before the test function returns.
package locktest
