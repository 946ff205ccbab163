// Package httpsoak tests httpmw.Idempotent while its servers are killed. The HTTP servers are real,
// each in a separate process, in front of one real redis-server. Many clients send each key's
// request many times, at random and at the same time. Meanwhile the servers are killed at random
// moments and at chosen steps of a run, and started again on the same port. An oracle outside of
// the lock uses a journal that the handlers write, and the responses that the clients got. It
// reports whether each key was done as promised. Run it with
//
//	go test ./internal/httpsoak -count=1 -v -args -keys 1000 -clients 50 -kill 500ms
//
// Without arguments it takes a few seconds, as a part of the other tests.
package httpsoak
