package redis_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// pair is a primary with one replica, and the link between them.
type pair struct {
	*testing.T
	master, replica *redistest.Server
	link            *redistest.Relay
}

func newPair(t *testing.T, args ...string) *pair {
	t.Helper()
	p := &pair{T: t, master: redistest.Real(t, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)}
	p.link = redistest.Proxy(t, p.master.Addr())
	p.replica = redistest.Real(t, append(p.link.ReplicaOf(), args...)...)
	p.linked()
	return p
}

// linked waits until the replica is in sync.
func (p *pair) linked() {
	p.Helper()
	c := p.replica.Client(p)
	eventually(p.T, "the replica is in sync", func() bool {
		return strings.Contains(c.Info(p.Context(), "replication").Val(), "master_link_status:up")
	})
}

// offsets matches the offset that the replica has acknowledged, and the offset of the primary.
var offsets = regexp.MustCompile(`(?s)slave0:.*offset=(\d+),.*master_repl_offset:(\d+)`)

// silence cuts the link once the replica has acknowledged all writes. So only later writes are
// lost, and a WAIT for an earlier write counts the replica.
func (p *pair) silence() {
	p.Helper()
	c := p.master.Client(p)
	eventually(p.T, "the replica has acknowledged everything", func() bool {
		m := offsets.FindStringSubmatch(c.Info(p.Context(), "replication").Val())
		return m != nil && m[1] == m[2]
	})
	p.link.Silence()
}

// promote kills the primary and makes the replica a primary.
func (p *pair) promote() {
	p.Helper()
	p.Cleanup(func() { time.Sleep(1200 * time.Millisecond) }) // go-redis tries once a second to reach a dead server
	p.master.Stop()
	if err := p.replica.Client(p).ReplicaOf(p.Context(), "NO", "ONE").Err(); err != nil {
		p.Fatal(err)
	}
}

// lockerFor returns a Locker on rdb that is closed when the test ends.
func lockerFor(t *testing.T, rdb redis.UniversalClient, o lockcore.Options) *lockcore.Locker {
	t.Helper()
	l, err := lockcore.New(rdb, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = l.Close(ctx) // its server may be stopped
	})
	return l
}

// on returns a Locker on one server.
func (p *pair) on(s *redistest.Server, acks int) *lockcore.Locker {
	p.Helper()
	return lockerFor(p.T, s.Client(p), lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: acks}, Terms: lockcore.Terms{Lease: 3 * time.Second}})
}

func take(t *testing.T, l *lockcore.Locker, key string, terms lockcore.Terms) *lockcore.Lease {
	t.Helper()
	return takeCall(t, l, key, testcall.Call{Terms: terms})
}

func takeCall(t *testing.T, l *lockcore.Locker, key string, c testcall.Call) *lockcore.Lease {
	t.Helper()
	le, err := c.Acquire(t.Context(), l, key)
	if err != nil {
		t.Fatal(err)
	}
	return le
}

// refusedFor checks that err refuses a grant because only acked of wanted replicas have
// acknowledged it.
func refusedFor(t *testing.T, err error, acked, wanted int) {
	t.Helper()
	if text := fmt.Sprintf("%d of %d replicas acknowledged", acked, wanted); !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("%v, want %d of %d", err, acked, wanted)
	}
	for _, target := range []error{lockcore.ErrReplicaAcks, lockcore.ErrUnavailable, lockcore.ErrNotRun} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
}

// Without ReplicaAcks a failover breaks mutual exclusion. A grant that no replica has is lost with
// its primary. The promoted replica grants the key while the first lease is valid. The second token
// is greater, so a resource that checks tokens refuses the first holder.
// Shows: P2, B5
func TestFailoverSecondHolder(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for name, before := range map[string]int{"unknown key": 0, "known key": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			a, b := p.on(p.master, 0), p.on(p.replica, 0)
			for range before {
				if err := take(t, a, "k", lockcore.Terms{}).Release(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			p.silence()
			first := take(t, a, "k", lockcore.Terms{Lease: 10 * time.Second}) // longer than the promotion takes
			p.promote()
			second := take(t, b, "k", noWait)
			if err := first.Context().Err(); err != nil {
				t.Errorf("inconclusive: the first lease has ended: %v", err)
			}
			if second.Token() <= first.Token() {
				t.Errorf("token %d after %d", second.Token(), first.Token())
			}
			<-first.Context().Done() // within its lease
			_ = first.Release(t.Context())
			if err := second.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// With ReplicaAcks a grant that no replica has is refused and withdrawn. The key is granted again
// when the replica is back. WAIT must follow the write on its own connection: on any other
// connection of the pool, which has written nothing since, it would count the replica.
// Shows: P3
func TestReplicaAcksRefuse(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	l, witness := p.on(p.master, 1), p.on(p.master, 0)
	var wg sync.WaitGroup
	for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} { // connections to choose from
		wg.Go(func() {
			if le, err := l.Acquire(t.Context(), key, lockcore.Terms{}); err != nil {
				t.Error(err)
			} else if err := le.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	p.silence()
	alone := testcall.Call{Terms: noWait}
	share, permit, waits := alone, alone, alone
	share.Limit.N, permit.Limit.N, waits.Wait = lockcore.Unlimited, 3, 1500*time.Millisecond
	for _, call := range []testcall.Call{alone, share, permit, waits} {
		_, err := call.Acquire(t.Context(), l, "k")
		refusedFor(t, err, 0, 1)
	}
	eventually(t, "the key is free", func() bool {
		h, err := witness.Inspect(t.Context(), event.KindExclusive, "k")
		return err == nil && h.State == lockcore.StateFree
	})
	p.link.Heal()
	for _, limit := range []int{0, lockcore.Unlimited, 3} {
		if err := takeCall(t, l, "k", testcall.Call{Limit: lockcore.Limit{N: limit}, Terms: lockcore.Terms{Wait: 30 * time.Second}}).Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// N is more than the number of replicas. The error says how many have acknowledged.
func TestReplicaAcksTooMany(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	l := p.on(p.master, 2)
	var err error
	eventually(t, "one replica acknowledges in time", func() bool {
		_, err = l.Acquire(t.Context(), "k", noWait)
		return !errors.Is(err, lockcore.ErrReplicaAcks) || !strings.Contains(err.Error(), "0 of 2")
	})
	refusedFor(t, err, 1, 2)
}

// A renewal that no replica has does not extend the lease. When another process acquires the key on
// the promoted replica, the ctx of the first holder has ended.
// Shows: P3
func TestReplicaAcksRenewal(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p, control := newPair(t), redistest.NewControl(t)
	a, b := p.on(p.master, 1), p.on(p.replica, 0)
	start := time.Now()
	first := take(t, a, "k", lockcore.Terms{})
	p.silence()
	eventually(t, "2.5 s have passed, so only the master has a renewal", func() bool { return time.Since(start) > 2500*time.Millisecond })
	p.promote()
	second := take(t, b, "k", lockcore.Terms{Wait: 20 * time.Second})
	select {
	case <-first.Context().Done():
	case <-time.After(control.Late(start)):
		t.Errorf("two holders after %v", time.Since(start))
	}
	if !second.Abandoned() {
		t.Error("Abandoned is false after a takeover")
	}
	if err := first.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	_ = second.Release(t.Context())
}

// With a replica in sync, leases are renewed, extended, handed off and rotated as without
// ReplicaAcks. Each write is one command and one WAIT.
func TestReplicaAcksHealthy(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	count := new(redistest.Counter)
	rdb := p.master.Client(t, func(o *redis.Options) { o.Dialer = count.Dial(o.Dialer) })
	l := lockerFor(t, rdb, lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}, Terms: lockcore.Terms{Lease: 3 * time.Second}})
	warm := take(t, l, "warm", lockcore.Terms{})
	if err := warm.Extend(t.Context(), 4*time.Second); err != nil {
		t.Error(err)
	}
	_ = warm.Release(t.Context())
	count.Reset()
	le := take(t, l, "k", lockcore.Terms{})
	if count.Count("acquire") != 1 || count.Count("wait") != 1 {
		t.Errorf("sent: %s", count)
	}
	eventually(t, "4 renewals, each with a WAIT", func() bool {
		n := count.Count("renew")
		return n >= 4 && count.Count("wait") == 1+n
	})
	if err := context.Cause(le.Context()); err != nil {
		t.Error(err)
	}
	if err := le.Release(t.Context()); err != nil {
		t.Error(err)
	}
	turns := contend(t.Context(), t, []*lockcore.Locker{l, p.on(p.master, 1)}, 2000)
	if turns() == 0 || count.Count("rotate") == 0 {
		t.Errorf("inconclusive: %s", count)
	}
}

// contend acquires and releases one key from 16 goroutines on the Lockers, limit times in total,
// and returns when all have ended. It fails if two hold the key at the same time.
func contend(ctx context.Context, t *testing.T, lockers []*lockcore.Locker, limit int64) (turns func() int64) {
	t.Helper()
	var inside, n atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n.Load() < limit {
				le, err := lockers[i%len(lockers)].Acquire(ctx, "hot", lockcore.Terms{Wait: 20 * time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
				if inside.Add(1) != 1 {
					t.Error("two holders at the same time")
				}
				inside.Add(-1)
				_ = le.Release(t.Context())
			}
		})
	}
	wg.Wait()
	return n.Load
}
