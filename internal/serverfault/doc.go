// Package serverfault tests what a real redis-server may do to its clients: it may reply late, not
// at all or with an error, or lose its data. Faults of the network are in internal/sim.
package serverfault
