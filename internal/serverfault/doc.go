// Package serverfault has the tests of what a real redis-server may do to its clients: reply late,
// not reply, reply with errors, or forget what it has stored. The faults of a network are in
// internal/sim.
package serverfault
