// Package topology contains the tests on more than one server: a primary with replicas and
// sentinels, and a cluster. Primaries are killed, stopped and resumed, and slots move, while
// processes compete for keys with the same code as on one server. The tests judge what handlers
// see. They count the handlers of a key that run at once under a valid ctx, and check that fencing
// tokens grow. They also check what a register that checks tokens accepts. Run it with
//
//	HOLDFAST_TEST_LEVEL=campaign go test ./internal/topology -count=1 -v -args -for 60s -failovers 10 -migrations 2000
//
// Without arguments each test has one failover, and 50 slots move.
package topology
