// Package topology holds the tests on more than one server: a master with replicas and sentinels, and a cluster, in which masters are killed,
// stopped and thawed, and slots move, while processes contend for keys with the same code as on one server. What is judged is what handlers
// see: how many of a key run at once with a ctx that has not ended, whether their tokens grow, and what a register that checks tokens lets
// pass. Run it with
//
//	go test ./internal/topology -count=1 -v -args -for 60s -failovers 10 -migrations 2000
//
// Without arguments there is one failover a test and 50 migrations.
package topology
