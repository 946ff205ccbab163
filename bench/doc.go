// Command bench compares holdfast with other locks on Redis, and writes RESULTS.md, FAULTS.md and
// chart.svg:
//
//	go -C bench run . -list                            the scenarios, in words
//	go -C bench run . -write .                         all of them, into the three files: about an hour
//	go -C bench run . -scenario seq,par -only floor,holdfast -rounds 30 -for 1s
//	go -C bench run . -redis HOST:6379 -scenario seq   on your server, with its network
//
// Unless -redis names a server, bench starts a redis-server on a free port, and stops it at the
// end. It starts itself again for each run, so that the CPU time and the memory of one library are
// not part of the figures of another one. The order of the libraries changes with each round.
//
// Absolute figures vary with the machine and its load, so a ratio compares two runs of the same
// round. The tables show medians over the rounds. Package golang.org/x/perf/benchmath computes them
// and the 95 % confidence intervals of the ratios, which need at least six rounds.
//
// Use -before to compare two builds of holdfast. It names another build of this program, from a
// checkout of the commit before a change. Its holdfast runs in turns with the one of this program,
// as holdfast+before. A change is no slower if the CPU time of an operation, divided by the time
// before the change, is at most 1.03 over the whole interval.
//
// Each critical section checks, in memory that all processes share, that no more sections than
// allowed run at once. The exit code is 1 if holdfast fails this check, in a scenario with faults
// too, and if a waiter of holdfast is never served or a run fails.
package main
