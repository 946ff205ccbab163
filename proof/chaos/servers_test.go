package chaos_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/postgres"
	"github.com/holdfast-go/holdfast/proof/chaos"
)

// servers are what a scenario runs on: one of these.
type servers struct {
	one     *redistest.Server
	trio    *redistest.Trio
	shards  *redistest.Shards
	route   *route
	masters []*redistest.Server // independent
	disks   []string            // folders of their append-only files
	struck  []*struck           // their faults
	base    *database
}

// clients are the kinds of client that a worker can have, by name. The network of the kind "one"
// has points.
var clients = map[string]func(t task, w *tripwire) redis.UniversalClient{
	"one": func(t task, w *tripwire) redis.UniversalClient {
		o := &redis.Options{Addr: t.Addrs[0]}
		o.Dialer = w.dial(redis.NewDialer(o))
		return redis.NewClient(o)
	},
	"sentinel": func(t task, _ *tripwire) redis.UniversalClient { return redis.NewFailoverClient(failover(t)) },
	"sentinel, NewUniversalClient": func(t task, _ *tripwire) redis.UniversalClient {
		return redis.NewUniversalClient(&redis.UniversalOptions{MasterName: redistest.MasterName, Addrs: t.Addrs})
	},
	"sentinel, in a wrapper": func(t task, _ *tripwire) redis.UniversalClient {
		return struct{ redis.UniversalClient }{redis.NewFailoverClient(failover(t))}
	},
	"cluster": func(t task, _ *tripwire) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: t.Addrs})
	},
	"cluster, reading from replicas": func(t task, _ *tripwire) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: t.Addrs, ReadOnly: true, RouteRandomly: true})
	},
	"cluster, NewClient": func(t task, _ *tripwire) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: t.Addrs, NewClient: redis.NewClient})
	},
	"cluster, NewUniversalClient": func(t task, _ *tripwire) redis.UniversalClient {
		return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: t.Addrs[:1], IsClusterMode: true})
	},
}

func failover(t task) *redis.FailoverOptions {
	return &redis.FailoverOptions{MasterName: redistest.MasterName, SentinelAddrs: t.Addrs}
}

// connect returns the Locker of a worker, and its clients.
func connect(t task, w *tripwire, o lockcore.Options) (locks *lockcore.Locker, all []io.Closer, err error) {
	switch t.Client {
	case "postgres":
		pool, err := pgxpool.New(background(), t.Addrs[0])
		if err != nil {
			return nil, nil, err
		}
		locks, err = postgres.New(pool, postgres.Options{Options: o})
		return locks, []io.Closer{closer(pool.Close)}, err
	case "masters":
		masters := make([]*redis.Client, len(t.Addrs))
		for i, addr := range t.Addrs {
			masters[i] = redis.NewClient(&redis.Options{Addr: addr})
			all = append(all, masters[i])
		}
		locks, err = lockcore.NewQuorum(masters, o)
		return locks, all, err
	}
	client := clients[t.Client]
	if client == nil {
		return nil, nil, fmt.Errorf("no client is named %q", t.Client)
	}
	rdb := client(t, w)
	locks, err = lockcore.New(rdb, o)
	return locks, []io.Closer{rdb}, err
}

// closer is a Close without an error.
type closer func()

func (c closer) Close() error { c(); return nil }

func oneServer(r *run) {
	r.one = redistest.Real(r)
	r.task.Client, r.task.Addrs = "one", []string{r.one.Addr()}
}

// sentinels starts a primary, two replicas and three sentinels. args are those of the servers.
func sentinels(client string, args ...string) func(*run) {
	return func(r *run) {
		r.trio = redistest.Sentinel(r, args...)
		r.task.Client, r.task.Addrs = client, r.trio.Options().SentinelAddrs
	}
}

func cluster(client string) func(*run) {
	return func(r *run) {
		r.shards = redistest.Cluster(r)
		r.task.Client, r.task.Addrs = client, r.shards.Options().Addrs
	}
}

// slotOf returns the slot of a key of load.Any.
func (r *run) slotOf(i int) int { return r.shards.Slot("holdfast:2:x:{" + keyName(i) + "}") }

// route is a primary with a replica behind an address that moves from one to the other.
type route struct {
	from, to *redistest.Server
	relay    *redistest.Relay
}

func newRoute(r *run) {
	from := redistest.Real(r, "--repl-diskless-sync-delay", "0")
	host, port, _ := net.SplitHostPort(from.Addr())
	r.route = &route{from: from, to: redistest.Real(r, "--replicaof", host+" "+port), relay: redistest.Proxy(r, from.Addr())}
	r.settled("the replica is in sync", func() bool {
		return r.replication(r.route.to, "master_link_status:up", "slave_repl_offset:") > 0
	})
	r.task.Client, r.task.Addrs = "one", []string{"127.0.0.1:" + r.route.relay.Port()}
}

// move stops the writes to the primary until its replica has all of them, and promotes the replica.
func (r *run) move() {
	r.Helper()
	ctx, from, to := r.Context(), r.route.from.Client(r), r.route.to.Client(r)
	do(r, from, "CLIENT", "PAUSE", 60_000, "WRITE")
	all := r.replication(r.route.from, "role:master", "master_repl_offset:")
	r.settled("the replica has all writes", func() bool {
		return r.replication(r.route.to, "role:slave", "slave_repl_offset:") >= all
	})
	do(r, to, "REPLICAOF", "NO", "ONE")
	r.route.relay.Move(r.route.to.Addr())
	_ = from.Do(ctx, "CLIENT", "UNPAUSE").Err()
}

func (r *run) settled(what string, ok func() bool) {
	r.Helper()
	if !chaos.Within(patience, ok) {
		r.Errorf("not within %v: %s", patience, what)
	}
}

// replication returns a number of INFO REPLICATION, or -1 if the section does not contain fact.
func (r *run) replication(s *redistest.Server, fact, name string) int64 {
	r.Helper()
	info := s.Client(r).Info(r.Context(), "replication").Val()
	_, text, ok := strings.Cut(info, name)
	text, _, _ = strings.Cut(text, "\r")
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || !strings.Contains(info, fact) {
		return -1
	}
	return n
}

// killPrimary kills the primary, and waits until another server has replaced it.
func (r *run) killPrimary() {
	began := time.Now()
	if r.trio != nil {
		old := r.trio.Master()
		old.Stop()
		r.fault() // not earlier: until now records were lost with it
		next := r.trio.Failover(old)
		r.heal()
		r.each(50)
		r.knownThere(next)
	} else {
		slot := r.slotOf(0)
		old := r.shards.Master(slot)
		old.Stop()
		r.fault()
		r.shards.Failover(slot, old)
		r.heal()
		r.each(50)
	}
	r.Logf("replaced and in use after %v", time.Since(began).Round(time.Millisecond))
	time.Sleep(*after)
}

// knownThere checks that a new primary has received the scripts, and that every worker is
// subscribed there.
func (r *run) knownThere(primary *redistest.Server) {
	r.Helper()
	c := primary.Client(r)
	if errs := c.Info(r.Context(), "errorstats").Val(); !strings.Contains(errs, "errorstat_NOSCRIPT") {
		r.Errorf("inconclusive: the new primary knew the scripts: %s", errs)
	}
	r.settled("every worker is subscribed", func() bool {
		return len(c.PubSubChannels(r.Context(), "holdfast:*").Val()) == len(r.slots)
	})
}

// stopPrimary stops the primary, waits until it is replaced, and resumes it. For some seconds two
// servers accept writes.
func (r *run) stopPrimary() {
	old := r.trio.Master()
	r.fault()
	old.Pause()
	r.trio.Failover(old)
	r.heal()
	r.each(50)
	r.fault()
	old.Resume()
	c := old.Client(r)
	if !chaos.Within(90*time.Second, func() bool { // a late sentinel does nothing for 30 s (TILT)
		return strings.Contains(c.Info(r.Context(), "replication").Val(), "role:slave")
	}) {
		r.Fatal("the old primary still accepts writes")
	}
	r.fault() // until now its records were lost with it
	r.heal()
	time.Sleep(*after)
	r.each(50)
}

// migrate moves slots with keys that are held and waited for.
func migrate(times func() int) func(*run) {
	return func(r *run) {
		slots, n := 0, times()
		for i := 0; i < n || i < 4*n && r.moved < n/2; i++ { // more slots if too few of them had a key
			slots++
			slot := r.slotOf(i % keys)
			from := r.shards.Master(slot)
			for _, to := range r.shards.Masters() {
				if to != from {
					m := r.shards.Begin(slot, to)
					time.Sleep(*after / 60)
					m.Keys()
					time.Sleep(*after / 60) // a large slot takes long: until the end its keys can be neither acquired nor released
					m.End()
					r.moved += m.Moved
					break
				}
			}
			time.Sleep(*after / 10)
		}
		r.Logf("%d slots moved with %d keys", slots, r.moved)
		if r.moved < n/2 {
			r.Error("inconclusive: too few of the slots had a key")
		}
	}
}

// planned replaces a working primary by move, as for its maintenance, and starts more workers
// afterwards, two a second. All of them have to hold the keys.
func planned(move func(*run), more int) func(*run) {
	return func(r *run) {
		r.each(20)
		r.fault()
		move(r)
		r.heal()
		for range more {
			r.join()
			time.Sleep(time.Second / 2)
		}
		r.await("a hold of each worker", func(o *oracle) bool {
			for _, p := range r.slots {
				if o.heldBy[p.name] < 10 {
					return false
				}
			}
			return true
		})
	}
}
