// Package history records the calls that many goroutines make on several Lockers on a real
// redis-server. Each call is recorded with the time before it and the time after its return. Then
// it checks the history of each key. TestHistory uses porcupine to compare it with a model of a
// fenced reentrant mutex and of a once key. Each holder increments a register that checks fencing
// tokens. TestHistoryShares does the same with readers and writers of the registers. Run it with
//
//	go -C proof test ./history -count=1 -v -args -ops 1000000 -workers 64 -keys 256
//
// Without -ops the tests make 1,000,000 operations at level campaign, and are skipped at lower
// levels. The operations are made and checked in rounds of -round, which bounds the memory.
package history
