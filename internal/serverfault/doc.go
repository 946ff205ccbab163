// Package serverfault tests what a real redis-server may do to its clients: it replies late, not at
// all or with errors, or loses its data. Faults of the network are in internal/sim.
package serverfault
