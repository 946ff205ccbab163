// Package soak contains the soak. Real processes compete for a few keys of a real redis-server, and
// an oracle outside the lock judges them. One key is hot: all processes make the same calls on it,
// and each must get the same share of it. On the other keys some calls have other terms, some do
// not wait, and some waits are canceled. A process that takes part is killed from time to time. Run
// it with
//
//	HOLDFAST_TEST_LEVEL=campaign go test ./internal/soak -count=1 -v -args -for 60s -procs 1,3,8 -kill 4s -goroutines 48 -keys 4
//
// TestSoakShares does the same with shares, for the time of -shares. Processes are also stopped and
// cut off from the network, and the parent checks which holds there were at the same time.
//
// Without arguments the soak takes a few seconds and kills no process.
package soak
