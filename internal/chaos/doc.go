// Package chaos holds what the tests have in common that stop and kill processes and make servers
// fail:
//
//   - [Process], a worker that is the test binary once more, with lines of JSON in both directions,
//   - [Register], a shared counter that checks fencing tokens and notices lost increments,
//   - [Locker] and [CheckLeftovers], for the begin and the end of a test on a real server.
//
// What a harness promises and how it judges that stays in its own package.
package chaos
