// Package signals stops and kills worker processes at named points: in the middle of a command to
// Redis, between a check and the write that follows it, between an effect and its record, and in
// the wait queue. The processes are this package's test binary, and the server is a real
// redis-server. What is judged happens outside of the lock, in the test's own process. Run it with
//
//	go test ./internal/signals -count=1 -v -args -pauses 20 -kills 30
//
// internal/soak and internal/httpsoak kill at any moment. Here the point of each kill is known.
package signals
