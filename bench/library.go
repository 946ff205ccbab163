package main

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

// locker is a library in one process.
type locker interface {
	// lock waits for key as long as ctx allows. Some libraries derive the ctx of the lock from ctx.
	lock(ctx context.Context, key string) (held, error)
}

// held is a held lock.
type held interface {
	unlock(ctx context.Context) error
}

// setup has the settings with which a library is opened.
type setup struct {
	addr    string
	cluster []string // all nodes, if addr is one of a Cluster
	masters []string // all servers, if a majority of them decides
	dial    dialFunc
	lease   time.Duration // 0: the one in the library's README
	limit   int           // as lockcore.Limit.N; 0: one
	rate    lockcore.Rate // zero: locks

	failFast bool          // redsync returns when a majority has replied
	timeouts bool          // go-redis honors the deadline of a ctx also while it reads and writes
	pause    time.Duration // of redislock between two tries; 0: 10 ms
}

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// addrs returns the initial addresses of a client.
func (s setup) addrs() []string {
	if len(s.cluster) > 0 {
		return s.cluster
	}
	return []string{s.addr}
}

// library is a lock that is measured.
type library struct {
	name     string
	module   string // its version is reported; empty for code of this repository
	settings string
	peer     bool // a library of another project; the marks compare with the best of these as "best library"
	open     func(setup) (locker, error)
}

const (
	floorName     = "floor"
	pipelinedName = "floor-autopipeline"
	redissonName  = "redisson-read"
	rateName      = "redis_rate"
	holdfastName  = "holdfast"
	beforeName    = "holdfast+before"    // of the build that -before names
	quietName     = "holdfast+quiet"     // http-hot: without the clients of the hot key
	unboundedName = "holdfast+unbounded" // http-hot: all clients of the hot key may wait
	failFastName  = "redsync+failfast"   // quorum: WithFailFast(true)
)

// libraries has all libraries, in the order of the tables.
var libraries = []library{
	{
		name: floorName, module: "github.com/redis/go-redis/v9", open: openFloor,
		settings: "the least that a lock does, without a library: SET NX with a random value and 30 s, compare-and-delete by EVALSHA; if busy, it sleeps 1 to 9 ms at random",
	},
	{
		name: pipelinedName, module: "github.com/redis/go-redis/v9", open: openPipelinedFloor,
		settings: "the same on Client.AutoPipeline()",
	},
	{
		name: "redsync", module: "github.com/go-redsync/redsync/v4", peer: true, open: openRedsync,
		settings: "defaults (8 s, 50 to 250 ms between tries), but unlimited tries, because by default it gives up after 32; in quorum, a pool for each server, and +failfast returns when a majority has replied (WithFailFast)",
	},
	{
		name: "redislock", module: "github.com/bsm/redislock", peer: true, open: openRedislock,
		settings: "30 s as in its README, LinearBackoff(10 ms)",
	},
	{
		name: "rueidislock", module: "github.com/redis/rueidis", peer: true, open: openRueidislock,
		settings: "its README's example: KeyMajority 1, NoLoopTracking; validity 5 s",
	},
	{
		name: redissonName, peer: true, open: openRedisson,
		settings: "only in shared: the commands of RedissonReadLock (Redisson 3.x of 2024, commit 0482efe), in scripts that go-redis sends; 30 s",
	},
	{
		name: rateName, module: "github.com/go-redis/redis_rate/v10", peer: true, open: openRedisRate,
		settings: "only in rates: a loop of Allow, which sleeps for RetryAfter",
	},
	{
		name: holdfastName, open: openHoldfast,
		settings: "Terms{Wait: lockcore.Forever}; 30 s; in quorum, NewQuorum with 8 s; in rates, Throttle",
	},
}

// libraryNames returns the names for -only.
func libraryNames() (names []string) {
	for _, l := range libraries {
		names = append(names, l.name)
	}
	return names
}

// baseName returns the name of the library in LIBRARY+VARIANT.
func baseName(name string) string {
	base, _, _ := strings.Cut(name, "+")
	return base
}

// libraryNamed returns the library with the given name, which may have a variant.
func libraryNamed(name string) (library, bool) {
	for _, l := range libraries {
		if l.name == baseName(name) {
			return l, true
		}
	}
	return library{}, false
}
