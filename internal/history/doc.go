// Package history records what many goroutines ask of several Lockers on a real redis-server, each call with the time before it and the
// time after its return, and checks the history of each key: with porcupine against a model of a fenced reentrant mutex, a Once included, and
// with a fenced register that each holder increments. TestHistoryShares does it with readers and writers of the registers. Run it with
//
//	go test ./internal/history -count=1 -v -args -ops 1000000 -workers 64 -keys 256
//
// Without arguments it makes 20,000 operations. Memory is bounded by -round: so many operations are made, and checked, at a time.
package history
