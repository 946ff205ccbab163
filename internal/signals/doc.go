// Package signals stops and kills worker processes at named points. These are in the middle of a
// command to Redis, between a check and the write that follows it, between an effect and its
// record, and in the queue of a key. The workers are processes of the test binary, the server is a
// real redis-server, and an oracle in the process of the tests judges what they do. Run it with
//
//	go test ./internal/signals -count=1 -v -args -pauses 20 -kills 30
//
// internal/soak and internal/httpsoak kill at random moments. Here the moment is known.
package signals
