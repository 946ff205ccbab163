package main

import (
	"context"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

// locker is a library in one process.
type locker interface {
	// lock waits for key as long as ctx allows.
	lock(ctx context.Context, key string) (held, error)
}

// held is a held lock. Implementations are pointers or have the size of one pointer, so that the
// conversion to the interface needs no allocation.
type held interface {
	unlock(ctx context.Context) error
}

// setup has the settings with which a library is opened.
type setup struct {
	addr    string
	cluster []string // all nodes, if addr is one of a Cluster
	wire    *wire.Counter
	lease   time.Duration // 0: the one in the library's README
	limit   int           // as Terms.Limit; 0: one
	passes  *passes       // records renewals, if the library reports them
}

// library is one row of every table.
type library struct {
	name     string
	module   string // its version is reported; empty for code of this repository
	settings string
	peer     bool // a library of another project; the marks compare with the best of these as "best library"
	watchdog bool // renews a lease for as long as its holder runs
	limit    bool // no lock library, only an upper limit to compare with; only in scenarios with limits
	reads    bool // acquires only shares, only in scenarios that name it
	open     func(setup) (locker, error)
}

const (
	floorName     = "floor"
	pipelinedName = "floor-autopipeline"
	patientName   = "redislock-100ms"
	holdfastName  = "holdfast"
	unbatchedName = "holdfast+no-groups"
	tracedName    = "holdfast+otel"
	quietName     = "holdfast+quiet"
	unboundedName = "holdfast+unbounded"
	semaphoreName = "semaphore"
	modelName     = "model"
	getName       = "get"
	redissonName  = "redisson-read"
	shareName     = "holdfast+share"
	hashName      = "holdfast+hash"
	beforeName    = "holdfast+before"
)

// libraries has all libraries, in the order of the tables.
var libraries = []library{
	{
		name: floorName, module: "github.com/redis/go-redis/v9", open: openFloor,
		settings: "SET NX with a random value and 30 s, compare-and-delete by EVALSHA; when busy it sleeps 1 to 9 ms at random; go-redis with its defaults",
	},
	{
		name: pipelinedName, module: "github.com/redis/go-redis/v9", open: openPipelinedFloor,
		settings: "the same on Client.AutoPipeline() with its default options",
	},
	{
		name: "redsync", module: "github.com/go-redsync/redsync/v4", peer: true, open: openRedsync,
		settings: "defaults (8 s, 50 to 250 ms between tries) on the go-redis pool, but with unlimited tries, because by default it gives up after 32",
	},
	{
		name: "redislock", module: "github.com/bsm/redislock", peer: true, open: openRedislock,
		settings: "30 s as in its README; LinearBackoff(10 ms) without a limit of tries",
	},
	{
		name: patientName, module: "github.com/bsm/redislock", peer: true, open: openPatientRedislock,
		settings: "the same with the 100 ms of its example; only where there is contention: this is far faster with 1,000 waiters, but a few waiters wait longer",
	},
	{
		name: "rueidislock", module: "github.com/redis/rueidis", peer: true, watchdog: true, open: openRueidislock,
		settings: "its README's example: KeyMajority 1, NoLoopTracking true; validity 5 s",
	},
	{
		name: semaphoreName, module: "golang.org/x/sync", limit: true, open: openSemaphore,
		settings: "weight 1, without Redis: the limit for the goroutines of one process; only in hot and hot1k",
	},
	{
		name: modelName, limit: true, open: openModel,
		settings: "the minimum of holdfast's design, without its other features: the process holds a lock of the floor, and has a queue of callers, hand-offs without a command, tokens, a ctx that ends with the lease, and one renewing goroutine; only in hot and hot1k",
	},
	{
		name: getName, module: "github.com/redis/go-redis/v9", limit: true, open: openFloor,
		settings: "a handler that writes the value of one GET and does not read the request body; only in http-replay",
	},
	{
		name: redissonName, peer: true, reads: true, open: openRedisson,
		settings: "the commands of RedissonReadLock (Redisson 3.x of 2024, source at commit 0482efe), in scripts that were written for this measurement and that go-redis sends by EVALSHA; lease 30 s without its watchdog; only in shared",
	},
	{
		name: holdfastName, watchdog: true, open: openHoldfast,
		settings: "Terms{Wait: lockcore.Forever}; lease 30 s",
	},
	{
		name: unbatchedName, watchdog: true, open: openUnbatched,
		settings: "the same with Options.NoGroups; only where there is a delay",
	},
	{
		name: tracedName, watchdog: true, open: openTraced,
		settings: "as holdfast, with tracing.New on OpenTelemetry's no-op providers; only in observer",
	},
	{
		name: shareName, watchdog: true, open: openShare,
		settings: "as holdfast, with Terms.Limit 3, so that every hold is a share; only in share-pair",
	},
	{
		name: hashName, watchdog: true, open: openHash,
		settings: "as holdfast, with keys that remember an ended request, so that every hold is a hash; only in share-pair",
	},
	{
		name: beforeName, watchdog: true, open: openHoldfast,
		settings: "as holdfast, of the build that -before names",
	},
	{
		name: quietName, watchdog: true, open: openHoldfast,
		settings: "as holdfast, without the clients of the hot key; only in http-hot",
	},
	{
		name: unboundedName, watchdog: true, open: openHoldfast,
		settings: "as holdfast, with Terms.MaxWaiting 1,000,000, so that all clients of the hot key may wait; only in http-hot",
	},
}

// variant reports whether l is holdfast with other settings. Only some scenarios have variants.
func (l library) variant() bool { return strings.HasPrefix(l.name, holdfastName+"+") }

// libraryNames returns the names for -only.
func libraryNames() []string {
	var names []string
	for _, l := range libraries {
		if !l.variant() {
			names = append(names, l.name)
		}
	}
	return names
}

// libraryNamed returns the library with the given name. For the name of a contender, LIBRARY+USAGE,
// it returns the library.
func libraryNamed(name string) (library, bool) {
	for _, l := range libraries {
		if l.name == name {
			return l, true
		}
	}
	if base, _, ok := strings.Cut(name, "+"); ok {
		return libraryNamed(base)
	}
	return library{}, false
}
