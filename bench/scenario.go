package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/hotkey"
	"github.com/holdfast-go/holdfast/bench/kills"
	"github.com/holdfast-go/holdfast/lockcore"
)

// kind selects the task of a child, and the table of a result.
type kind string

const (
	lockKind   kind = "lock"   // workers lock and unlock
	memoryKind kind = "memory" // keys are held and released
	waitKind   kind = "wait"   // waiters wait behind one holder
	httpKind   kind = "http"   // a server with a hot key serves requests for other keys
	asynqKind  kind = "asynq"  // workers of an asynq server process tasks of a hot account and of others
	faultKind  kind = "fault"  // a network fails under a holder
	quorumKind kind = "quorum" // as lock, on several independent servers
	rateKind   kind = "rate"   // workers wait for a rate, and hold nothing
	killKind   kind = "kill"   // workers of a queue are killed
)

// point is one setting of a scenario. Most scenarios have a single point.
type point struct {
	Name    string        `json:"name,omitempty"` // empty for the only one
	Procs   int           `json:"procs"`
	Workers int           `json:"workers"` // in all processes together; memory: leases; wait: waiters; fault: rounds, each on a separate key
	Keys    int           `json:"keys"`
	Limit   int           `json:"limit"`  // as lockcore.Limit.N; 0: one
	Inside  time.Duration `json:"inside"` // duration of a critical section
	Lease   time.Duration `json:"lease"`  // 0: the one in the library's README
	Most    int           `json:"most"`   // http: requests that the server processes at once; 0: no limit
	Load    hotkey.Load   `json:"load"`   // asynq
	Moment  moment        `json:"moment"` // fault: the kind of fault
	Cut     bool          `json:"cut"`    // fault: a connection that has lost a reply is closed, otherwise it becomes silent
	Masters int           `json:"masters"`
	Trip    time.Duration `json:"trip"` // quorum: time of a round trip that the network adds
	Rate    lockcore.Rate `json:"rate"` // rate
	Kills   int           `json:"kills"`

	Kind kind `json:"kind"` // of the scenario
}

// workersOf returns the number of workers of process i.
func (p point) workersOf(i int) int {
	n := p.Workers / p.Procs
	if i < p.Workers%p.Procs {
		n++
	}
	return n
}

// scenario is one comparison. Each of its points is measured for each of its libraries.
type scenario struct {
	name      string
	about     string // for -list and for the pages
	kind      kind
	libraries []string
	cluster   bool          // on a Redis Cluster, which is started for it
	fixed     time.Duration // the window of a run, independent of -for
	rounds    int           // 0: as -rounds says
	named     bool          // it runs only if -scenario names it
	points    []point
}

const (
	heldKeys    = 100_000 // the default of -keys
	waiters     = 1_000
	sectionTime = 2 * time.Millisecond
	limit       = 3
	noLimit     = "no limit"
	mostAtOnce  = "200 requests at once"
	belowRate   = "below the rate"
	atRate      = "at the rate"
)

var (
	locks    = []string{floorName, pipelinedName, "redsync", "redislock", "rueidislock", holdfastName}
	hotWays  = []string{quietName, holdfastName, unboundedName}
	policies = []string{hotkey.None, hotkey.Wait, hotkey.Park}
	quorums  = []string{"redsync", failFastName, holdfastName}
	queues   = []string{kills.BullMQ, kills.Careful, holdfastName}
)

// scenarios has all scenarios, in the order in which they run.
var scenarios = []scenario{
	{
		name: "seq", about: "one goroutine alone locks and unlocks one key", kind: lockKind, libraries: locks,
		points: []point{{Procs: 1, Workers: 1, Keys: 1}},
	},
	{
		name: "par", about: "64 goroutines of one process lock and unlock a key each, so that no call waits for another one", kind: lockKind, libraries: locks,
		points: []point{{Procs: 1, Workers: 64, Keys: 64}},
	},
	{
		name: "par-cluster", about: "the same on a Redis Cluster of three primaries", kind: lockKind, libraries: locks, cluster: true,
		points: []point{{Procs: 1, Workers: 64, Keys: 64}},
	},
	{
		name: "hot", about: "64 goroutines of one process want the same key, and do nothing while they hold it", kind: lockKind, libraries: locks,
		points: []point{{Procs: 1, Workers: 64, Keys: 1}},
	},
	{
		name: "multi", about: "four processes with 16 goroutines each want the same key, and do nothing while they hold it", kind: lockKind, libraries: locks,
		points: []point{{Procs: 4, Workers: 64, Keys: 1}},
	},
	{
		name: "multi-hold", about: "eight processes with 8 goroutines each want the same key, and work for 2 ms while they hold it", kind: lockKind, libraries: locks,
		points: []point{{Procs: 8, Workers: 64, Keys: 1, Inside: sectionTime}},
	},
	{
		name: "shared", about: "64 goroutines of one process read under one key, so that all of them may hold it at once", kind: lockKind, libraries: []string{redissonName, holdfastName},
		points: []point{{Procs: 1, Workers: 64, Keys: 1, Limit: lockcore.Unlimited}},
	},
	{
		name: "limited", about: "as multi-hold, but three callers may hold the key at once", kind: lockKind, libraries: []string{holdfastName},
		points: []point{{Procs: 8, Workers: 64, Keys: 1, Limit: limit, Inside: sectionTime}},
	},
	{
		name: "memory", about: "one process holds many keys (-keys), and releases them", kind: memoryKind, rounds: 1,
		libraries: []string{floorName, "redsync", "redislock", "rueidislock", holdfastName},
		points:    []point{{Procs: 1, Workers: heldKeys, Lease: memoryLease}},
	},
	{
		name: "wait", about: "1,000 goroutines of one process wait for a key that another one holds", kind: waitKind, rounds: 1, fixed: 6 * time.Second, libraries: locks,
		points: []point{{Procs: 1, Workers: waiters, Keys: 1}},
	},
	{
		name: "http-hot", about: "100 clients of an HTTP server use a key each (httpmw.Exclusive), while 1,000 other clients all use one more key, the hot key", kind: httpKind, libraries: hotWays,
		points: []point{
			{Name: noLimit, Procs: 1, Workers: 100, Keys: 101},
			{Name: mostAtOnce, Procs: 1, Workers: 100, Keys: 101, Most: 200},
		},
	},
	{
		name: "asynq", about: "workers of an asynq server process 200 tasks of one account, the hot one, and 200 tasks of 200 other accounts; each account runs one task at a time (asynqmw.Exclusive)",
		kind: asynqKind, libraries: policies, rounds: 3,
		points: []point{
			hotLoad(1, 100*time.Millisecond), hotLoad(1, time.Second),
			hotLoad(3, 100*time.Millisecond), hotLoad(3, time.Second),
		},
	},
	{
		name: "asynq-backlog", about: "as asynq, with 5,000 short tasks of further accounts behind these tasks in the queue, once or always", kind: asynqKind, libraries: policies[1:], rounds: 1, named: true,
		points: []point{backlog("5,000 tasks, once", false), backlog("always 5,000 tasks", true)},
	},
	{
		name: "quorum", about: "on a majority of 3 or 5 independent servers: one goroutine locks and unlocks one key (seq), and 64 goroutines want the same key (hot)", kind: quorumKind, libraries: quorums,
		points: []point{majority("seq", 3, 1), majority("seq", 5, 1), majority("hot", 3, 64), majority("hot", 5, 64)},
	},
	{
		name: "quorum-turns", about: "eight processes with a goroutine each want the same key on a majority of 5 servers, over a network that adds 10 ms to a round trip", kind: quorumKind, libraries: quorums, rounds: 1,
		fixed: 20 * time.Second, points: []point{{Procs: 8, Workers: 8, Keys: 1, Lease: quorumLease, Masters: 5, Trip: 10 * time.Millisecond}},
	},
	{
		name: "rates", about: "64 goroutines begin calls of one key at a rate: in one process below the rate (1,000,000 a second, Burst 1,000), and in eight processes that wait for it (99 a second, Burst 2)", kind: rateKind,
		libraries: []string{rateName, holdfastName},
		points: []point{
			{Name: belowRate, Procs: 1, Workers: 64, Keys: 1, Limit: lockcore.Unlimited, Rate: lockcore.Rate{N: 1_000_000, Per: time.Second, Burst: 1000}},
			{Name: atRate, Procs: 8, Workers: 64, Keys: 1, Limit: lockcore.Unlimited, Rate: lockcore.Rate{N: 99, Per: time.Second, Burst: 2}},
		},
	},
	{
		name: "partition", about: "the network of a holder loses all data, and another client gets the key when the lease ends: for how long do both run", kind: faultKind, libraries: contenders, rounds: 1,
		fixed: 30 * time.Second, points: []point{{Procs: 1, Workers: 16, Keys: 1, Lease: faultLease, Moment: partition}},
	},
	{
		name: "lost-answer", about: "Redis executes a command of a client, and the reply is lost: does anyone run twice or wait in vain", kind: faultKind, libraries: contenders, rounds: 1,
		fixed: 20 * time.Second, points: lostAnswers(loseAcquire, loseRenew, loseRelease),
	},
	{
		name: "kills", about: "300 workers of a queue are killed while they rebuild projections after each burst of changes: is a change lost (needs npm, which installs BullMQ into a temporary directory)",
		kind: killKind, libraries: queues, rounds: 1, named: true, points: []point{{Kills: 300}},
	},
}

// faultLease is the shortest lease that is recommended for real servers, so that a run does not
// take long.
const faultLease = 3 * time.Second

// quorumLease is the default of redsync. A server that is younger does not vote for holdfast.
const quorumLease = 8 * time.Second

func majority(name string, masters, workers int) point {
	return point{Name: fmt.Sprintf("%s, %d servers", name, masters), Procs: 1, Workers: workers, Keys: 1, Lease: quorumLease, Masters: masters}
}

// lostAnswers returns two points for each moment, one for each way in which a connection fails. A
// client detects a closed connection at once, and a silent one only by a timeout.
func lostAnswers(moments ...moment) []point {
	var ps []point
	for _, m := range moments {
		p := point{Name: string(m) + ", silent", Procs: 1, Workers: 8, Keys: 1, Lease: faultLease, Moment: m}
		ps = append(ps, p)
		p.Name, p.Cut = string(m)+", cut", true
		ps = append(ps, p)
	}
	return ps
}

func hotLoad(procs int, check time.Duration) point {
	return point{Name: fmt.Sprintf("%s, check every %v", plural(procs, "process"), check), Procs: procs, Load: hotkey.Load{Check: check}}
}

func backlog(name string, standing bool) point {
	p := hotLoad(1, 100*time.Millisecond)
	p.Name, p.Load.Backlog, p.Load.Standing = name, 5000, standing
	return p
}

// start starts the servers that s needs instead of the usual one, or returns nil.
func (s scenario) start(ctx context.Context) (*server, error) {
	most := 0
	for _, p := range s.points {
		most = max(most, p.Masters)
	}
	switch {
	case s.cluster:
		return startCluster(ctx)
	case most > 0:
		return startMasters(ctx, most, quorumLease)
	}
	return nil, nil
}

// window returns how long a run of s measures. It is 0 if the run ends with its work.
func (s scenario) window(o options) time.Duration {
	switch {
	case s.kind == asynqKind || s.kind == memoryKind || s.kind == killKind:
		return 0
	case s.fixed > 0:
		return s.fixed
	}
	return o.window
}

// cells returns the points of s with the libraries that o selects. Each of them is measured.
func (s scenario) cells(o options) (all []cell) {
	names := s.libraries
	if s.kind == lockKind && o.before != "" && slices.Contains(names, holdfastName) {
		names = append(slices.Clone(names), beforeName)
	}
	for _, p := range s.points {
		p.Kind = s.kind
		if s.kind == memoryKind {
			p.Workers = o.keys
		}
		for _, name := range names {
			if len(o.only) == 0 || slices.Contains(o.only, name) || slices.Contains(o.only, baseName(name)) {
				all = append(all, cell{p, name})
			}
		}
	}
	return all
}

// cell is what one run measures.
type cell struct {
	point   point
	library string
}

func scenarioNamed(name string) (scenario, bool) {
	i := slices.IndexFunc(scenarios, func(s scenario) bool { return s.name == name })
	if i < 0 {
		return scenario{}, false
	}
	return scenarios[i], true
}

func scenarioNames() (names []string) {
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// list explains the scenarios and the libraries.
func list(out io.Writer) {
	fmt.Fprintln(out, "Scenarios (* only if -scenario names it):")
	for _, s := range scenarios {
		mark := " "
		if s.named {
			mark = "*"
		}
		fmt.Fprintf(out, "%s %-14s %s\n", mark, s.name, s.about)
	}
	fmt.Fprintln(out, "\nLibraries:")
	for _, l := range libraries {
		fmt.Fprintf(out, "  %-19s %s\n", l.name, l.settings)
	}
	fmt.Fprintf(out, "\nIn http-hot: %s is without the clients of the hot key, and %s lets a million requests wait for it.\n", quietName, unboundedName)
	fmt.Fprintf(out, "In asynq: %s.\nIn kills: %s.\nWith faults: %s.\n", strings.Join(policies, ", "), strings.Join(queues, ", "), strings.Join(contenders, ", "))
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "s"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}
