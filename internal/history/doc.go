// Package history records the calls of many goroutines to several Lockers on a real redis-server,
// each with the time before the call and the time after its return. It checks the history of each
// key with porcupine against a model of a fenced reentrant mutex that includes Once. It also checks
// a fenced register, which each holder increments. TestHistoryShares does the same with readers and
// writers of the registers. Run it with
//
//	go test ./internal/history -count=1 -v -args -ops 1000000 -workers 64 -keys 256
//
// Without arguments it makes 20,000 operations. -round bounds the memory: it is the number of
// operations that are made, and then checked, at a time.
package history
