package main

import "time"

// job is the first message to a child, as one line of JSON.
type job struct {
	Library string   `json:"library"`
	Addr    string   `json:"addr"`
	Cluster []string `json:"cluster"` // all nodes, if Addr is one of a Cluster
	Prefix  string   `json:"prefix"`  // of every key; different for each run
	Witness string   `json:"witness"`
	Process int      `json:"process"`
	Point   point    `json:"point"`

	program string // the program of the child; empty: this one
}

// After the job, the parent sends these words, each on one line. It sends a word to all children,
// and waits for their answers before it sends the next one.
const (
	warmUp  = "warm up" // begin to work, or set up the measurement
	measure = "measure" // the window opens
	finish  = "finish"  // the window closes; the answer has the outcome, and the child ends

	giveBack = "give back" // only in the scenario memory, before finish: release the held keys
)

// answer is one line of JSON from a child. The first answer follows the job, when the child is
// ready. Each further answer follows a word.
type answer struct {
	Error   string   `json:"error,omitempty"`
	Outcome *outcome `json:"outcome,omitempty"`
}

// outcome is the result of one process for the time between measure and finish.
type outcome struct {
	Window     time.Duration `json:"window"`
	Ops        int64         `json:"ops"`
	Errors     int64         `json:"errors"`   // calls that failed and were repeated
	Commands   int64         `json:"commands"` // sent to Redis
	Trips      int64         `json:"trips"`
	CPU        time.Duration `json:"cpu"`
	Mallocs    int64         `json:"mallocs"`
	Waits      waits         `json:"waits"`
	Unserved   int64         `json:"unserved"`
	Violations int64         `json:"violations"`
	Inside     time.Duration `json:"inside"` // total time in critical sections
	Extra      figures       `json:"extra"`
	Said       string        `json:"said,omitempty"` // faults: the results of A's calls
}

// figures are the figures that only some scenarios have, by name.
type figures map[string]float64

// The names of figures.
const (
	goroutinesPerLease = "goroutines_per_lease"
	bytesPerLease      = "bytes_per_lease"
	cmdsPerLeaseS      = "redis_cmds_per_lease_s"
	tripsPerLeaseS     = "round_trips_per_lease_s"
	longestPassMS      = "longest_pass_ms"
	renewalsSeen       = "renewals"
	leasesLost         = "leases_lost"
	cmdsPerProcessS    = "redis_cmds_per_process_s"
	cmdsPerWaiterS     = "redis_cmds_per_waiter_s"
	bytesPerWaiter     = "bytes_per_waiter"
	tripsPerOp         = "round_trips_per_op"
	bytesPerKey        = "redis_bytes_per_held_key"
	bytesLeft          = "redis_bytes_left"
	keysHeld           = "redis_keys_held"
	keysLeft           = "redis_keys_left"
	usedBefore         = "used_memory_before"
	usedHeld           = "used_memory_held"
	usedAfter          = "used_memory_after"
	insideUS           = "inside_us"
	failedCalls        = "failed_calls"
	pingUS             = "ping_us" // the round trip of a PING before the run
	pairP50US          = "pair_p50_us"
	pairP99US          = "pair_p99_us"
	beyondP50US        = "beyond_handler_p50_us" // time of a request beyond its handler
	beyondP99US        = "beyond_handler_p99_us"
	hotServedS         = "hot_key_served_per_s"
	hotRefusedS        = "hot_key_refused_per_s"
	hotPresent         = "hot_key_most_in_server"
	writerP50US        = "writer_p50_us"
	writerP99US        = "writer_p99_us"
	writesS            = "writes_per_s"

	// The ratios of the tables, each with its interval.
	opsRatio = "holdfast_over_it"
	cpuRatio = "holdfast_cpu_over_it"
	lowEnd   = "_low"
	highEnd  = "_high"

	// Figures of the scenarios with faults. Those in _s have one of the three ends.
	conclusive   = "rounds"
	inconclusive = "rounds_inconclusive"
	untold       = "rounds_untold"
	neverB       = "rounds_never_granted"
	togetherS    = "two_at_once_s"
	toldS        = "told_after_grant_s"
	grantedS     = "granted_after_loss_s"
	stuckS       = "stuck_s"
	medianOf     = "_median"
	leastOf      = "_least"
	worstOf      = "_worst"
)
