package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// kind selects the task of a child.
type kind string

const (
	lockKind    kind = "lock"    // workers lock and unlock
	anyKind     kind = "any"     // workers lock any of the keys and unlock it
	holdKind    kind = "hold"    // leases are held
	waitKind    kind = "wait"    // waiters wait behind one holder
	reentryKind kind = "reentry" // nested calls acquire a held key
	onceKind    kind = "once"    // guard.Once
	httpKind    kind = "http"    // a handler serves requests
	hotKind     kind = "hot"     // a server with a hot key serves requests for other keys
	faultKind   kind = "fault"   // a network fails under a holder
	memoryKind  kind = "memory"  // keys are held and released
	rwKind      kind = "rw"      // readers and a writer of one key
)

// point is one setting of a scenario. Most scenarios have a single point.
type point struct {
	Name    string        `json:"name,omitempty"` // empty for the only one
	Kind    kind          `json:"kind"`
	Procs   int           `json:"procs"`
	Workers int           `json:"workers"` // in all processes together; hold, memory: leases; wait: waiters; fault: rounds, each on a separate key
	Keys    int           `json:"keys"`
	Shared  int           `json:"shared"` // percentage of the operations that use the last key
	Pairs   bool          `json:"pairs"`  // a lock with its unlock is timed too, not only the wait for the lock
	Limit   int           `json:"limit"`  // as Terms.Limit; 0: one
	Inside  time.Duration `json:"inside"` // duration of a critical section
	Lease   time.Duration `json:"lease"`  // 0: the one in the library's README
	Replay  bool          `json:"replay"` // once: the key is done already
	Hot     int           `json:"hot"`    // hot: clients of the last key, which no other client uses
	Most    int           `json:"most"`   // hot: requests that the server processes at once; 0: no limit
	Server  bool          `json:"server"` // http: the requests go through a server and a connection to it, otherwise the handler is called
	Moment  moment        `json:"moment"` // fault: the kind of fault
	Cut     bool          `json:"cut"`    // fault: a connection that has lost a reply is closed, otherwise it becomes silent
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
	name, title string
	libraries   []string      // empty: see has
	cluster     bool          // on a Redis Cluster, which is started for it
	delay       time.Duration // round trip through a proxy; selected by name only
	contended   bool          // a call waits for another one
	limits      bool          // limits are measured too
	points      []point
	beside      string        // the scenario with which the throughput of each library is compared
	times       int           // the window is this many times -for; 0 means 1
	fixed       time.Duration // the window, independent of -for
	single      bool          // it has one round, because its figures are counts, not speeds
}

// window returns how long a run of s measures.
func (s scenario) window(d time.Duration) time.Duration {
	if s.fixed > 0 {
		return s.fixed
	}
	return d * time.Duration(max(s.times, 1))
}

// faults reports whether s is a scenario with faults. All its contenders are measured at the same
// time, at all points, because they mostly wait.
func (s scenario) faults() bool { return s.points[0].Kind == faultKind }

// memory reports whether s measures the memory of Redis.
func (s scenario) memory() bool { return s.points[0].Kind == memoryKind }

// compares reports whether two builds of holdfast can be measured beside each other.
func (s scenario) compares() bool { return len(s.libraries) == 0 && !s.faults() }

func (s scenario) has(library string) bool {
	if s.faults() {
		_, ok := contenderNamed(library)
		return ok
	}
	if len(s.libraries) == 0 {
		l, _ := libraryNamed(library)
		return (!l.variant() || s.delay > 0 && library == unbatchedName) && library != getName && (s.contended || library != patientName) && (s.limits || !l.limit) && !l.reads
	}
	return slices.Contains(s.libraries, library)
}

const (
	heldLeases  = 10_000
	manyLeases  = 100_000
	parked      = 1_000
	sectionTime = 2 * time.Millisecond
	orderTime   = 200 * time.Millisecond
	longSection = 5 * time.Millisecond // longer than a batch of holdfast's
	limit       = 3
	limited3    = "limit 3"
	exclusive   = "exclusive"
	oneByOne    = "1 goroutine"
	sideBySide  = "64 goroutines, a key each"
	mostAtOnce  = "200 requests at once"
	anyStripe   = "any of 120"
)

var onlyHoldfast = []string{holdfastName}

// scenarios has all scenarios, in the order in which they run.
var scenarios = []scenario{
	{name: "seq", title: "1 goroutine locks and unlocks one key", points: locks(1, 1, 1, 0)},
	{name: "par", title: "64 goroutines, a key each", points: locks(1, 64, 64, 0)},
	{name: "par-cluster", title: "64 goroutines, a key each, on a Redis Cluster of 3 primaries", cluster: true, points: locks(1, 64, 64, 0)},
	{
		name: "par-5%", title: "64 goroutines, a key each, but 5 % of the operations use a key that all share", beside: "par",
		points: []point{{Kind: lockKind, Procs: 1, Workers: 64, Keys: 65, Shared: 5}},
	},
	{name: "hot", title: "64 goroutines in one process, one key", contended: true, limits: true, points: locks(1, 64, 1, 0)},
	{name: "hot1k", title: "1,000 goroutines in one process, one key", contended: true, limits: true, points: locks(1, 1000, 1, 0)},
	{name: "multi", title: "4 processes × 16 goroutines, one key", contended: true, points: locks(4, 64, 1, 0)},
	{name: "multi-hold", title: "8 processes × 8 goroutines, one key, 2 ms inside", contended: true, points: locks(8, 64, 1, sectionTime)},
	{
		name: "shared", title: "64 readers of one key in one process", libraries: []string{redissonName, holdfastName},
		points: []point{{Kind: lockKind, Procs: 1, Workers: 64, Keys: 1, Limit: lockcore.Unlimited}},
	},
	{
		name: "limited", title: "8 processes × 8 goroutines, one key, 2 ms inside: 3 at a time, and one at a time", libraries: onlyHoldfast,
		points: []point{
			{Name: limited3, Kind: lockKind, Procs: 8, Workers: 64, Keys: 1, Limit: limit, Inside: sectionTime},
			{Name: exclusive, Kind: lockKind, Procs: 8, Workers: 64, Keys: 1, Inside: sectionTime},
		},
	},
	{
		name: "rw", title: "4 processes × 16 readers of one key, 2 ms inside, and a writer every 50 ms", libraries: onlyHoldfast, times: 2,
		points: []point{{Kind: rwKind, Procs: 4, Workers: 64, Keys: 1, Limit: lockcore.Unlimited, Inside: sectionTime}},
	},
	{
		name: "share-pair", title: "a share without waiters, beside an exclusive hold in each of its forms",
		libraries: []string{shareName, hashName, holdfastName},
		points: []point{
			{Name: oneByOne, Kind: lockKind, Procs: 1, Workers: 1, Keys: 1},
			{Name: sideBySide, Kind: lockKind, Procs: 1, Workers: 64, Keys: 64},
		},
	},
	{
		name: "hold", title: "10,000 leases held", libraries: []string{"rueidislock", holdfastName}, times: 7, single: true,
		points: []point{
			{Name: "lease by README", Kind: holdKind, Procs: 1, Workers: heldLeases, Keys: heldLeases},
			{Name: "lease 9 s", Kind: holdKind, Procs: 1, Workers: heldLeases, Keys: heldLeases, Lease: 9 * time.Second},
		},
	},
	{
		name: "hold100k", title: "100,000 leases of 9 s held", libraries: onlyHoldfast, times: 4, single: true,
		points: []point{{Kind: holdKind, Procs: 1, Workers: manyLeases, Keys: manyLeases, Lease: 9 * time.Second}},
	},
	{
		name: "wait", title: "1,000 waiters in one process behind one holder", contended: true, times: 2, single: true,
		points: []point{{Kind: waitKind, Procs: 1, Workers: parked, Keys: 1}},
	},
	{
		name: "reentry", title: "a key that the caller holds is locked and unlocked again", libraries: onlyHoldfast,
		points: []point{{Kind: reentryKind, Procs: 1, Workers: 1, Keys: 1}},
	},
	{
		name: "once", title: "guard.Once by 1 goroutine", libraries: onlyHoldfast,
		points: []point{
			{Name: "fresh", Kind: onceKind, Procs: 1, Workers: 1, Keys: 1},
			{Name: "replay", Kind: onceKind, Procs: 1, Workers: 1, Keys: 1, Replay: true},
		},
	},
	{
		name: "http-replay", title: "1 client repeats requests whose responses httpmw.Idempotent has recorded, beside a handler that reads the response by GET",
		libraries: []string{getName, holdfastName},
		points: []point{
			{Name: "handler alone", Kind: httpKind, Procs: 1, Workers: 1, Keys: 1000},
			{Name: "over HTTP", Kind: httpKind, Procs: 1, Workers: 1, Keys: 1000, Server: true},
		},
	},
	{
		name: "http-hot", title: "100 clients with a key each at a server with httpmw.Exclusive, beside 1,000 clients of one key", times: 2,
		libraries: []string{quietName, unboundedName, holdfastName},
		points: []point{
			{Name: "no limit", Kind: hotKind, Procs: 1, Workers: 100, Keys: 101, Hot: 1000},
			{Name: mostAtOnce, Kind: hotKind, Procs: 1, Workers: 100, Keys: 101, Hot: 1000, Most: 200},
		},
	},
	{
		name: "stripes", title: "orders of 200 ms: two callers for each key, or seven per key for any key", libraries: onlyHoldfast,
		points: append(stripes(30, 60, 120), point{
			Name: anyStripe, Kind: anyKind, Procs: 1, Workers: 7 * 120, Keys: 120, Inside: orderTime,
		}),
	},
	{
		name: "observer", title: "seq with and without tracing, on OpenTelemetry's no-op providers", libraries: []string{holdfastName, tracedName},
		points: locks(1, 1, 1, 0),
	},
	{name: "commands", title: "commands sent per acquisition of one key, waiters × processes", libraries: onlyHoldfast, single: true, points: grid()},
	{
		name: "memory", title: "memory of keys in Redis while they are held, and after their release", single: true,
		libraries: []string{floorName, "redsync", "redislock", holdfastName},
		points:    []point{{Kind: memoryKind, Procs: 1, Workers: memoryKeys, Lease: memoryLease}},
	},
	delayed("delay-0.1ms", 100*time.Microsecond),
	delayed("delay-1ms", time.Millisecond),
	delayed("delay-10ms", 10*time.Millisecond),
	{
		name: "partition", title: "a holder's network loses all data, and no connection is closed", fixed: 30 * time.Second, single: true,
		points: []point{{Kind: faultKind, Procs: 1, Workers: 16, Keys: 1, Lease: faultLease, Moment: partition}},
	},
	{
		name: "lost-answer", title: "Redis executes a command, and its reply is lost", fixed: 20 * time.Second, single: true,
		points: lostAnswers(loseAcquire, loseRenew, loseRelease),
	},
}

// faultLease is the shortest lease that is recommended for real servers, so that a run does not
// take long.
const faultLease = 3 * time.Second

// lostAnswers returns two points for each moment, one for each way in which a connection fails. A
// client detects a closed connection at once, and a silent one only by a timeout.
func lostAnswers(moments ...moment) []point {
	var ps []point
	for _, m := range moments {
		p := point{Name: string(m) + ", silent", Kind: faultKind, Procs: 1, Workers: 8, Keys: 1, Lease: faultLease, Moment: m}
		ps = append(ps, p)
		p.Name, p.Cut = string(m)+", cut", true
		ps = append(ps, p)
	}
	return ps
}

func locks(procs, workers, keys int, inside time.Duration) []point {
	return []point{{Kind: lockKind, Procs: procs, Workers: workers, Keys: keys, Inside: inside}}
}

// stripes returns points with two workers for each key, so that an order always waits for the key.
// With one worker, a key would be idle between two orders, and that time would count as time of the
// lock.
func stripes(keys ...int) []point {
	var ps []point
	for _, n := range keys {
		ps = append(ps, point{Name: fmt.Sprint(n, " keys"), Kind: lockKind, Procs: 1, Workers: 2 * n, Keys: n, Inside: orderTime})
	}
	return ps
}

// grid returns points with two lengths of sections. Sections that take no time make most
// acquisitions hand-offs. With sections that last longer than a batch, no acquisition is a
// hand-off.
func grid() []point {
	var ps []point
	for _, inside := range []time.Duration{0, longSection} {
		for _, waiters := range []int{1, 8, 64, 250, 1000} {
			for _, procs := range []int{1, 2, 4, 8} {
				if procs > waiters {
					continue
				}
				p := point{Name: fmt.Sprintf("%d × %d", waiters, procs), Kind: lockKind, Procs: procs, Workers: waiters, Keys: 1, Inside: inside}
				if inside > 0 {
					p.Name += fmt.Sprint(", ", inside, " inside")
				}
				ps = append(ps, p)
			}
		}
	}
	return ps
}

// delayed returns the scenario par over a network with a round trip of d. It also measures the time
// of pairs, because both calls of a pair wait for the network.
func delayed(name string, d time.Duration) scenario {
	s := scenario{name: name, title: fmt.Sprintf("goroutines with a key each, a round trip of %v more", d), delay: d}
	for _, n := range []int{1, 8, 64, 512} {
		s.points = append(s.points, point{Name: plural(n, "goroutine"), Kind: lockKind, Procs: 1, Workers: n, Keys: n, Pairs: true})
	}
	return s
}

// scenarioNames returns the names for -scenario. The last one selects all scenarios with a delay.
func scenarioNames() []string {
	var names []string
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return append(names, delayGroup)
}

// selected reports whether names, the names of -scenario, select s. Without names, all scenarios
// run except memory and those with a delay, because these take as long as all others together.
func (s scenario) selected(names []string) bool {
	if s.delay > 0 && slices.Contains(names, delayGroup) {
		return true
	}
	if len(names) == 0 {
		return s.delay == 0 && !s.memory()
	}
	return slices.Contains(names, s.name)
}
