// Command bench measures holdfast against other locks on Redis. One run measures every library in
// every scenario. Absolute figures vary with the machine and its load, so only ratios are
// meaningful. For the same reason the order of the libraries changes with each round.
//
//	go -C bench run . [-scenario NAME,…] [-only LIB,…] [-for 3s] [-rounds 6] [-redis ADDR] [-keys 1000000] [-before FILE] [-json] [-svg FILE] [-md FILE]
//
// Unless -redis names a server, bench starts a redis-server on a free port, and stops it at the
// end. For every measured run, bench starts itself again in one or more child processes. So the CPU
// time, memory and goroutines of one library are not part of the figures of another one, and a
// library that hangs ends with its process.
//
// The scenario par-cluster starts a Redis Cluster of three primaries. The scenarios delay-0.1ms,
// delay-1ms and delay-10ms run behind a proxy. It delays every byte by half of the named round
// trip, in both directions. It limits neither the bytes nor the commands in flight. The tables show
// the median round trip of a PING through the proxy, measured before each run. They also show the
// p50 and p99 of a pair, which is a lock with its unlock. These scenarios take about half an hour
// together, and run only if -scenario names them; "-scenario delay" selects all three.
//
// The scenario memory acquires and releases as many keys as -keys says. It reads used_memory and
// DBSIZE of Redis before the keys are acquired, while all are held, and after all are released. It
// takes minutes, and runs only if -scenario names it.
//
// The scenario http-hot measures clients of an HTTP server, each of which uses a separate key. At
// the same time 1,000 other clients use one more key, the hot key. The scenario is measured three
// times: without the clients of the hot key (holdfast+quiet), with httpmw's default MaxWaiting
// (holdfast), and practically without a bound on the waiters (holdfast+unbounded).
//
// The scenarios shared, limited, rw and share-pair measure shares. shared compares holdfast's
// readers with the commands of Redisson's read lock. limited compares permits with an exclusive
// key. rw has readers and a writer. share-pair measures the CPU time of Redis for a share.
//
// Use -before to compare two builds of holdfast. FILE is another build of this program, from a
// checkout of the commit before a change. Its holdfast runs in turns with that of this program,
// under the name holdfast+before. A change is no slower if the CPU time of a pair, divided by that
// before the change, is at most 1.03 over the whole 95 % interval.
//
// In the scenarios partition and lost-answer, the network of a client fails while another client
// waits for the same key. They measure for how many seconds both run at once; FAULTS.md has the
// results. The exit code is 1 if two holders of holdfast run at once, or if a waiter of holdfast is
// never served.
//
// A ratio compares two runs of the same round, because these are close together in time. The tables
// show the median of the ratios of all rounds, with the 95 % bootstrap interval.
//
// Every critical section checks, in memory that all processes share, that no more sections than
// allowed run at once. The exit code is 1 if this check fails for holdfast or the floor.
package main
