// Package soak holds the soak: real processes that contend for a few keys of a real redis-server, with an oracle outside
// the lock. One key is hot: on it all processes do the same, and must get the same share. On the others some calls have other terms,
// some do not wait, and some waits are canceled. Every so often a process that takes part is killed. Run it with
//
//	go test ./internal/soak -count=1 -v -args -for 60s -procs 1,3,8 -kill 4s -goroutines 48 -keys 4
//
// TestSoakShares does the same with shares, for -shares: processes are also stopped and cut off from the network, and
// the parent checks which holds there were at the same time.
//
// Without arguments it runs for a few seconds and kills nobody, as a part of the other tests.
package soak
