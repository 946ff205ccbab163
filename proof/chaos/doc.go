// Package chaos runs workers that compete for keys while processes, servers and networks fail, and
// judges what they did. Run all of it, or one scenario, with
//
//	make campaign STAGES=chaos
//	HOLDFAST_TEST_LEVEL=campaign go -C proof test ./chaos -v -run 'TestChaos/^stops$'
//
// It has four parts:
//
//   - The worker (worker_test.go) is a process of the test binary. It makes the calls of its load,
//     and writes what its handlers see to a journal: a pipe that all workers share, so that the
//     order of the lines is the order of the events.
//   - An order makes a worker stop or die at a point (point_test.go): at a step of a handler, or
//     when a command of the network is sent or answered.
//   - The oracle (oracle_test.go) reads the journal and judges holds, tokens, once keys, waits and
//     calls. It knows nothing of Redis and PostgreSQL. judge_test.go tells it stories with one mistake each.
//   - A scenario (scenarios_test.go) is a row of a table: the servers, the load, what happens to
//     whom, which rules hold, and what the run must have shown, so that it proves something.
//
// To add a scenario, add a row. If the judge must find a new kind of mistake, first add a story with
// that mistake to judge_test.go.
package chaos
