// Package httpsoak holds the proof of httpmw.Idempotent under fire: real HTTP servers, each a process of its own, in front of one real
// redis-server. Many clients send each key's request many times, at random and together, while the servers are killed at
// random moments and at chosen steps of a run, and started again on the same port. An oracle outside the lock, made of a journal that handlers
// write and of what clients got, says whether each key was done as promised. Run it with
//
//	go test ./internal/httpsoak -count=1 -v -args -keys 1000 -clients 50 -kill 500ms
//
// Without arguments it takes a few seconds, as a part of the other tests.
package httpsoak
