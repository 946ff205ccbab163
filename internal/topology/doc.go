// Package topology contains the tests on more than one server: a master with replicas and
// Sentinels, and a Cluster. Masters are killed, or stopped and continued, and slots move, while
// processes contend for keys with the same code as on one server. The tests judge what handlers
// see: how many handlers of a key run at once with a ctx that has not ended, whether their tokens
// grow, and which writes a register that checks tokens accepts. Run it with
//
//	go test ./internal/topology -count=1 -v -args -for 60s -failovers 10 -migrations 2000
//
// Without arguments there is one failover a test and 50 migrations.
package topology
