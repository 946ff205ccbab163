package locktest

import (
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/lockcore"
)

// Bubble runs test in a testing/synctest bubble, with a new Locker in memory. Leases, waits and
// retentions of hours take milliseconds, because the clock of a bubble advances when all of its
// goroutines wait.
//
//	locktest.Bubble(t, func(t *testing.T, locks *lockcore.Locker) {
//		release := locktest.Hold(t, locks, "account:42")
//		time.AfterFunc(time.Hour, release)
//		lease, err := locks.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: lockcore.Forever})
//		// an hour later
//	})
//
// For several processes, or another configuration, call [NewServer] in the bubble. The rules of
// every bubble apply:
//
//   - Make all Lockers, clients, channels and timers in the bubble, not before it and not in
//     another test.
//   - Do not call t.Run or t.Parallel in test. Both are allowed before Bubble.
//   - The clock does not advance while a goroutine waits for a mutex, a socket or a process. So do
//     not hold your own mutex during a call that sends a request to Redis, and use no real server.
//   - Your own client for the Server needs the Options that the Server returns. With another Addr,
//     use an IP address: a host name would be looked up outside the bubble.
//   - All goroutines must end before test returns. A lease that is not released within 1 s after
//     that fails the test. A goroutine that is blocked forever causes a panic.
func Bubble(t *testing.T, test func(t *testing.T, locks *lockcore.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(t)) })
}
