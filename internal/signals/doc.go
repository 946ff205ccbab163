// Package signals stops and kills worker processes at named points. Some of these are in the middle
// of a command to Redis, or in the queue of a key. Others are between a check and the write that
// follows it, or between an effect and its record. The workers are processes of the test binary,
// and the server is a real redis-server. An oracle in the process of the tests judges what the
// workers do. Run it with
//
//	HOLDFAST_TEST_LEVEL=campaign go test ./internal/signals -count=1 -v -args -pauses 20 -kills 30
//
// internal/soak and internal/httpsoak kill at random moments. Here the moment is known.
package signals
