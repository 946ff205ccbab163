package main

import (
	"time"

	"github.com/holdfast-go/holdfast/bench/hotkey"
)

// job is the first message to a child, as one line of JSON.
type job struct {
	Library string   `json:"library"`
	Addr    string   `json:"addr"`
	Nodes   []string `json:"nodes"`  // all servers, if there are several
	Queue   string   `json:"queue"`  // asynq: the server of the queue
	Prefix  string   `json:"prefix"` // of every key; different for each run
	Witness string   `json:"witness"`
	Process int      `json:"process"`
	Point   point    `json:"point"`

	program string // the program of the child; empty: this one
}

// After the job, the parent sends these words, each on one line. It sends a word to all children,
// and waits for their answers before it sends the next one.
const (
	warmUp   = "warm up"   // begin to work, or set up the measurement
	measure  = "measure"   // the window opens
	giveBack = "give back" // only in the scenario memory: release the held keys
	finish   = "finish"    // the window closes; the answer has the outcome, and the child ends
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
	Commands   int64         `json:"commands"` // sent to Redis
	CPU        time.Duration `json:"cpu"`
	Waits      waits         `json:"waits"`
	Gaps       waits         `json:"gaps"` // from a grant to the next one, of any process
	Unserved   int64         `json:"unserved"`
	Violations int64         `json:"violations"`
	Inside     time.Duration `json:"inside"` // total time in critical sections
	Extra      figures       `json:"extra"`
	Said       string        `json:"said,omitempty"` // faults: the results of A's calls
	Tasks      hotkey.Tally  `json:"tasks"`          // asynq
}

// figures are measured values by name. The name is the head of the column that shows the figure.
type figures map[string]float64

// The names of figures. Times have µs, unless the name says otherwise.
const (
	ops        = "ops/s"
	p50        = "p50"
	p99        = "p99"
	commands   = "commands/op"
	redisCPU   = "Redis µs/op"
	clientCPU  = "client µs/op"
	allCPU     = "CPU µs/op" // both
	unserved   = "unserved"
	violations = "violations"
	ofPossible = "of the possible" // the part of the time in which the places of a key were taken
	leastShare = "smallest share"  // operations of the process with the fewest, divided by the mean

	perQueue = "p99 ÷ queue/rate" // the longest wait in turn: the goroutines, divided by the rate
	ofRate   = "of the rate"      // the part of the rate that was used

	tripsPerGrant = "round trips/grant" // median time between two grants, divided by the time of a round trip

	goroutinesPerLease = "goroutines/lease"
	bytesPerLease      = "client bytes/lease"
	bytesPerKey        = "Redis bytes/key"
	keysLeft           = "keys left"
	bytesPerWaiter     = "heap bytes/waiter"
	commandsPerS       = "commands/process·s"

	hotServed  = "hot key: served/s"
	hotRefused = "refused/s"
	hotPresent = "most in the server"

	othersDone     = "others done, s"
	hotDone        = "hot account done, s"
	deliveries     = "deliveries/hot task"
	commandsPerHot = "lock commands/hot task"
	backlogDone    = "backlog done"
	notCompleted   = "not completed"
	archived       = "archived or retries used up"

	inconclusive   = "inconclusive"
	untold         = "A never canceled"
	neverB         = "B never granted"
	togetherMedian = "two at once, s: median"
	togetherWorst  = "worst"
	toldMedian     = "A canceled after B has the key, s: median"
	grantedWorst   = "B has the key after the silence, s: worst"
	stuckWorst     = "key stuck, s: worst"

	killCount    = "workers killed"
	runsKilled   = "runs killed"
	triggerCount = "triggers"
	runCount     = "runs"
	lostTriggers = "last trigger lost"
	staleRuns    = "older after newer"
	sideBySide   = "side by side"
	strayKeys    = "keys left for ever"
)
