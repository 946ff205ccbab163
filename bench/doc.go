// Command bench measures holdfast against other locks on Redis. Every library runs through every
// scenario in one run, in an order that changes with each round, because machines are noisy and
// only ratios are meaningful.
//
//	go -C bench run . [-scenario NAME,…] [-only LIB,…] [-for 3s] [-rounds 6] [-redis ADDR] [-keys 1000000] [-before FILE] [-json] [-svg FILE] [-md FILE]
//
// Unless -redis names one, it starts a redis-server on a free port and stops it at the end. The
// program starts itself again for every measured run, in one or more processes. So CPU, memory and
// goroutines of one library do not appear in the figures of another, and a library that hangs ends
// with its process.
//
// The scenario par-cluster starts a Redis Cluster of three primaries. The scenarios delay-0.1ms,
// delay-1ms and delay-10ms run behind a proxy that delivers every byte half of the named round trip
// later, in both directions. It limits neither the bytes nor the commands in flight. The tables
// show the median round trip of a PING through it, measured before each run. They also show the p50
// and p99 of a pair: a lock with its unlock. These scenarios take about half an hour together and
// run only if -scenario names them; "-scenario delay" selects all three.
//
// The scenario memory reads used_memory and DBSIZE of Redis before -keys keys are acquired, while
// all are held and after all are released. It takes minutes, and runs only if -scenario names it.
//
// The scenario http-hot has clients with a key each at an HTTP server, beside 1,000 clients of one
// more key. They are measured without these clients (holdfast+quiet), with httpmw's default
// MaxWaiting (holdfast), and without a bound (holdfast+unbounded).
//
// The scenarios shared, limited, rw and share-pair measure shares. shared compares readers with the
// commands of Redisson's read lock, and limited compares permits with an exclusive key. rw has
// readers and a writer. share-pair measures the cost of a share in Redis.
//
// With -before, holdfast of another build of this program runs in turns with this one, as
// holdfast+before. A change is no slower if the whole interval of the CPU time of a pair is at most
// 1.03 of that before. Build the other one in a checkout of the commit before the change.
//
// In the scenarios partition and lost-answer a holder's network fails while another client waits
// for its key. They measure for how long both run, in seconds; FAULTS.md has the results. The exit
// code is 1 if two holders of holdfast run at once, or if one of its waiters is never served.
//
// A ratio is computed in each round, because the runs of one round are close together in time. The
// tables show its median over the rounds and the 95 % bootstrap interval.
//
// Every critical section checks, in memory that all processes share, that no more sections than
// allowed run at once. The exit code is 1 if that ever fails for holdfast or the floor.
package main
