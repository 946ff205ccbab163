package topology_test

import (
	"context"
	"fmt"
	rnd "math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/chaos"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// A primary that works is replaced, as for its maintenance. Processes from before and processes
// that start afterwards compete for one key, by each kind of client that New accepts. All of them
// continue, and the key never has two holders, although the old primary accepts writes for seconds
// with Sentinel, and forever behind a Dialer.
//
// Sentinel does not pause the old primary while it promotes a replica. So a grant may be lost until
// the old primary stops, as in every failover (GUARANTEES, P2). Without min-replicas-to-write it
// would stop only after 8 s, when Sentinel demotes it. Until then it would serve each process that
// missed the announcement: go-redis asks a sentinel for the primary before it subscribes. With the
// setting it stops when its replicas leave. Overlaps until a lease after the announcement are
// logged.
func TestPlannedFailover(t *testing.T) {
	testlevel.Campaign(t)
	ofSentinel := map[string]func(*redis.FailoverOptions) redis.UniversalClient{
		"NewFailoverClient": func(o *redis.FailoverOptions) redis.UniversalClient { return redis.NewFailoverClient(o) },
		"NewUniversalClient with MasterName": func(o *redis.FailoverOptions) redis.UniversalClient {
			return redis.NewUniversalClient(&redis.UniversalOptions{MasterName: o.MasterName, Addrs: o.SentinelAddrs})
		},
		"a wrapper of a failover client": func(o *redis.FailoverOptions) redis.UniversalClient { return wrapper{redis.NewFailoverClient(o)} },
	}
	ofCluster := map[string]func(*redis.ClusterOptions) redis.UniversalClient{
		"NewClusterClient": func(o *redis.ClusterOptions) redis.UniversalClient { return redis.NewClusterClient(o) },
		"that reads from replicas": func(o *redis.ClusterOptions) redis.UniversalClient {
			o.ReadOnly, o.RouteRandomly = true, true
			return redis.NewClusterClient(o)
		},
		"with NewClient": func(o *redis.ClusterOptions) redis.UniversalClient {
			o.NewClient = redis.NewClient
			return redis.NewClusterClient(o)
		},
		"NewUniversalClient with IsClusterMode": func(o *redis.ClusterOptions) redis.UniversalClient {
			return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: o.Addrs[:1], IsClusterMode: true, Dialer: o.Dialer})
		},
	}
	for name, client := range ofSentinel {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds(t, func(t *testing.T) {
				s := redistest.Sentinel(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")
				// Sentinel demotes the old primary after 8 s, so new processes start for 10 s.
				replaced(t, func() redis.UniversalClient { return client(s.Options()) }, s.Plan, lease, 20)
			})
		})
	}
	for name, client := range ofCluster {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds(t, func(t *testing.T) {
				s := redistest.Cluster(t)
				replaced(t, func() redis.UniversalClient { return client(s.Options()) }, func() { s.Plan(slotOf(s, 0)) }, 0, 4)
			})
		})
	}
	t.Run("with Dialer", func(t *testing.T) {
		t.Parallel()
		rounds(t, func(t *testing.T) {
			r := newRoute(t)
			replaced(t, func() redis.UniversalClient {
				return redis.NewClient(&redis.Options{Addr: "primary:6379", Dialer: r.dial})
			}, r.move, 0, 4)
		})
	})
}

// A client that reads from the replicas of a Sentinel acquires nothing.
func TestSentinelReplicaOnly(t *testing.T) {
	testlevel.Full(t)
	s := redistest.Sentinel(t)
	l := chaos.Locker(t, s.Client(t, func(o *redis.FailoverOptions) { o.ReplicaOnly = true }), lockcore.Options{})
	if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait}); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("on a replica: %v, want READONLY", err)
	}
}

type wrapper struct{ redis.UniversalClient }

// team is processes that compete for the first key of the load, and hold it for milliseconds.
type team struct {
	ctx context.Context //nolint:containedctx // ends with the test
	wg  sync.WaitGroup

	mu       sync.Mutex
	holders  map[context.Context]string
	moved    time.Time
	holds    map[string]int // by class
	overlaps []doubleHold
}

type doubleHold struct {
	after   time.Duration // after the move began
	holders string
}

// replaced replaces the primary by move while processes that dial made compete for a key. Then it
// starts new processes, two a second. It checks that the key never has two holders, except until
// lost after the end of move, and that old and new processes get it afterwards.
func replaced(t *testing.T, dial func() redis.UniversalClient, move func(), lost time.Duration, newOnes int) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	p := &team{ctx: ctx, holders: map[context.Context]string{}, holds: map[string]int{}}
	defer p.wg.Wait()
	defer stop()
	for range processes {
		p.join(t, "old", dial())
	}
	p.reach(t, 50, "old")
	time.Sleep(rnd.N(time.Second)) // a different moment of the servers' timers in each round
	p.mu.Lock()
	p.moved = time.Now()
	p.mu.Unlock()
	began := time.Now()
	move()
	took := time.Since(began).Round(time.Millisecond)
	for range newOnes {
		p.join(t, "new", dial())
		time.Sleep(time.Second / 2)
	}
	p.reach(t, 50, "old after it", "new after it")
	p.mu.Lock()
	defer p.mu.Unlock()
	t.Logf("replaced in %v: holds %v, %d overlaps %.300s", took, p.holds, len(p.overlaps), fmt.Sprint(p.overlaps))
	for _, o := range p.overlaps {
		if lost == 0 || o.after < 0 || o.after > took+lost {
			t.Errorf("two holders: %s after %v", o.holders, o.after)
		}
	}
}

// join starts a process.
func (p *team) join(t *testing.T, class string, rdb redis.UniversalClient) {
	t.Helper()
	t.Cleanup(func() { _ = rdb.Close() })
	locks := chaos.Locker(t, rdb, lockcore.Options{Terms: lockcore.Terms{Lease: lease, Wait: wait}})
	p.wg.Go(func() {
		for p.ctx.Err() == nil {
			if le, err := locks.Acquire(p.ctx, keyName(0), lockcore.Terms{}); err == nil {
				p.enter(le.Context(), class)
				time.Sleep(rnd.N(10 * time.Millisecond))
				p.leave(le.Context())
				_ = le.Release(context.Background()) // an error means that the lease was lost, so its ctx has ended
			}
			time.Sleep(rnd.N(5 * time.Millisecond))
		}
	})
}

func (p *team) enter(ctx context.Context, class string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other, of := range p.holders {
		if other.Err() == nil && ctx.Err() == nil {
			o := doubleHold{after: -1, holders: class + " beside " + of}
			if !p.moved.IsZero() {
				o.after = time.Since(p.moved).Round(time.Millisecond)
			}
			p.overlaps = append(p.overlaps, o)
		}
	}
	p.holders[ctx] = class
	p.holds[class]++
	if !p.moved.IsZero() {
		p.holds[class+" after it"]++
	}
}

func (p *team) leave(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holders, ctx)
}

// reach waits until each class has n holds.
func (p *team) reach(t *testing.T, n int, classes ...string) {
	t.Helper()
	if !chaos.Within(time.Minute, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, class := range classes {
			if p.holds[class] < n {
				return false
			}
		}
		return true
	}) {
		t.Fatalf("fewer than %d holds of %q in a minute", n, classes)
	}
}

// route is a Dialer of a program that moves from a primary to its replica: it closes the old
// connections itself.
type route struct {
	t        *testing.T
	from, to *redistest.Server

	mu    sync.Mutex
	moved bool
	conns []net.Conn
}

func newRoute(t *testing.T) *route {
	t.Helper()
	r := &route{t: t, from: redistest.Real(t, "--repl-diskless-sync-delay", "0")}
	host, port, _ := strings.Cut(r.from.Addr(), ":")
	r.to = redistest.Real(t, "--replicaof", host+" "+port)
	r.until("the replica is in sync", func() bool { return number(t, r.to, "master_link_status:up", "slave_repl_offset:") > 0 })
	return r
}

func (r *route) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	r.mu.Lock()
	addr := r.from.Addr()
	if r.moved {
		addr = r.to.Addr()
	}
	r.mu.Unlock()
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.moved && addr == r.from.Addr() {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	r.conns = append(r.conns, conn)
	return conn, nil
}

// move stops the writes to the primary until its replica has all of them, and promotes the replica.
func (r *route) move() {
	r.t.Helper()
	ctx, from, to := r.t.Context(), r.from.Client(r.t), r.to.Client(r.t)
	if err := from.Do(ctx, "CLIENT", "PAUSE", 60_000, "WRITE").Err(); err != nil {
		r.t.Fatal(err)
	}
	all := number(r.t, r.from, "role:master", "master_repl_offset:")
	r.until("the replica has all writes", func() bool { return number(r.t, r.to, "role:slave", "slave_repl_offset:") >= all })
	if err := to.Do(ctx, "REPLICAOF", "NO", "ONE").Err(); err != nil {
		r.t.Fatal(err)
	}
	r.mu.Lock()
	r.moved = true
	for _, conn := range r.conns {
		_ = conn.Close()
	}
	r.mu.Unlock()
	if err := from.Do(ctx, "CLIENT", "UNPAUSE").Err(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *route) until(what string, ok func() bool) {
	r.t.Helper()
	if !chaos.Within(time.Minute, ok) {
		r.t.Fatalf("not within a minute: %s", what)
	}
}

// number returns a number of INFO REPLICATION, or -1 if the section does not contain fact.
func number(t *testing.T, s *redistest.Server, fact, name string) int64 {
	t.Helper()
	info := s.Client(t).Info(t.Context(), "replication").Val()
	_, text, ok := strings.Cut(info, name)
	text, _, _ = strings.Cut(text, "\r")
	n, err := strconv.ParseInt(text, 10, 64)
	if !ok || err != nil || !strings.Contains(info, fact) {
		return -1
	}
	return n
}
