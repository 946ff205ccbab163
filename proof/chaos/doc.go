// Package chaos contains the common parts of the tests that stop and kill processes or make servers
// fail:
//
//   - [Process], a second process of the test binary, with lines of JSON in both directions,
//   - [Register], a shared counter that checks fencing tokens and notices lost increments,
//   - [Locker] and [CheckLeftovers], for the beginning and the end of a test on a real server.
//
// Each harness has its promises and its judgment in its own package.
package chaos
