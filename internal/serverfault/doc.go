// Package serverfault has the tests of what a real redis-server may do to its clients: answer late, not at all, with errors, or forget
// what it knew. What a bad network does is in internal/sim.
package serverfault
