package locktest

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Bubble runs test in a testing/synctest bubble, with a Locker on a Redis of its own: leases, waits and keeps of hours take
// milliseconds, for time goes on when all goroutines of the test wait.
//
//	locktest.Bubble(t, func(t *testing.T, locks *lockcore.Locker) {
//		release := locktest.Hold(t, locks, "account:42")
//		time.AfterFunc(time.Hour, release)
//		lease, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: lockcore.Forever})
//		// an hour later
//	})
//
// For several processes, or another configuration, make a [NewServer] in it. As in every bubble:
//
//   - what it uses is made in it: Lockers, clients, channels, timers; not before, and not in another test,
//   - it has no t.Run and no t.Parallel (before Bubble both are fine),
//   - time stands still while a goroutine waits for a mutex, a socket or a process; so hold no mutex of yours over a call that
//     asks Redis, and use no real server,
//   - a client of your own to the Server needs the Options that it gives; with another, Addr must be an IP address, for a name
//     would be looked up outside,
//   - its goroutines must have ended when test returns; who holds a lease for longer fails it, who blocks for ever panics.
func Bubble(t *testing.T, test func(t *testing.T, locks *lockcore.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(t)) })
}
