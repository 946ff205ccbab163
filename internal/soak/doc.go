// Package soak holds the soak: real processes that contend for a few keys of a real redis-server, with an oracle outside
// the lock. Run it with
//
//	go test ./internal/soak -count=1 -v -args -for 60s -procs 3 -goroutines 64 -keys 4
//
// Without arguments it runs for a few seconds, as a part of the other tests.
package soak
