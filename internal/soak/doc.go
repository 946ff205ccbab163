// Package soak contains the soak test: real processes contend for a few keys of a real
// redis-server, and an oracle outside of the lock checks them. One key is hot: all processes make
// the same calls for it, and must get the same share. For the other keys some calls have other
// terms, some do not wait, and some waits are canceled. From time to time a process that takes part
// is killed. Run it with
//
//	go test ./internal/soak -count=1 -v -args -for 60s -procs 1,3,8 -kill 4s -goroutines 48 -keys 4
//
// TestSoakShares does the same with shares, for -shares: processes are also stopped and cut off
// from the network, and the parent checks which holds there were at the same time.
//
// Without arguments it runs for a few seconds and kills no process, as a part of the other tests.
package soak
