// Package httpsoak tests httpmw.Idempotent with real HTTP servers, each a process, in front of one
// real redis-server. Many clients send the request of each key many times, at random moments and
// together. Meanwhile the servers are killed, at random moments and at chosen steps of a run, and
// started again on the same port. An oracle outside the lock checks that each key was done as
// promised. It compares a journal that the handlers write with the responses that clients got. Run
// it with
//
//	HOLDFAST_TEST_LEVEL=campaign go test ./internal/httpsoak -count=1 -v -args -keys 1000 -clients 50 -kill 500ms
//
// Without arguments it takes a few seconds.
package httpsoak
