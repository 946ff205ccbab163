package lockcore_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// pair is a master with one replica, and the link between them.
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

// linked waits until the replica is in step.
func (p *pair) linked() {
	p.Helper()
	c := p.replica.Client(p)
	eventually(p.T, "the replica is in step", func() bool {
		return strings.Contains(c.Info(p.Context(), "replication").Val(), "master_link_status:up")
	})
}

// offsets are where the master is and how far the replica has acknowledged.
var offsets = regexp.MustCompile(`(?s)slave0:.*offset=(\d+),.*master_repl_offset:(\d+)`)

// silence cuts the link when the replica has acknowledged all that there is, so that only what comes after is lost, and whoever asks of before
// is told that the replica has it.
func (p *pair) silence() {
	p.Helper()
	c := p.master.Client(p)
	eventually(p.T, "the replica has acknowledged everything", func() bool {
		m := offsets.FindStringSubmatch(c.Info(p.Context(), "replication").Val())
		return m != nil && m[1] == m[2]
	})
	p.link.Silence()
}

// promote kills the master and makes the replica one.
func (p *pair) promote() {
	p.Helper()
	p.Cleanup(func() { time.Sleep(1200 * time.Millisecond) }) // go-redis looks once a second whether a dead server is back
	p.master.Stop()
	if err := p.replica.Client(p).ReplicaOf(p.Context(), "NO", "ONE").Err(); err != nil {
		p.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
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
		_ = l.Close(ctx) // its server may be gone
	})
	return l
}

// on is a Locker on one server.
func (p *pair) on(s *redistest.Server, acks int) *lockcore.Locker {
	p.Helper()
	return lockerFor(p.T, s.Client(p), lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: acks}, Terms: lockcore.Terms{Lease: 3 * time.Second}})
}

func take(t *testing.T, l *lockcore.Locker, key string, terms lockcore.Terms) *lockcore.Lease {
	t.Helper()
	le, err := l.Acquire(t.Context(), key, terms)
	if err != nil {
		t.Fatal(err)
	}
	return le
}

// refusedFor checks that err is what a grant is refused with that acked of wanted replicas have acknowledged.
func refusedFor(t *testing.T, err error, acked, wanted int) {
	t.Helper()
	few, ok := errors.AsType[*lockcore.ReplicaAcksError](err)
	if !ok || few.Acked != acked || few.Wanted != wanted {
		t.Errorf("%v, want %d of %d", err, acked, wanted)
	}
	for _, target := range []error{lockcore.ErrReplicaAcks, lockcore.ErrUnavailable, lockcore.ErrNotRun} {
		if !errors.Is(err, target) {
			t.Errorf("%v is not %v", err, target)
		}
	}
}

// This is how a failover breaks the guarantee: a grant that no replica has is lost with its master, and another holder follows at once
// while the first lease is valid. Its token is greater all the same, so that a resource that checks tokens refuses the first.
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
				t.Errorf("inconclusive: the first holder is gone: %v", err)
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

// With ReplicaAcks the same grant is refused, given back, and served again when the replica is back. A WAIT on any other connection of the pool
// would count the replica: those have written nothing since.
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
	share, permit := noWait, noWait
	share.Limit, permit.Limit = lockcore.Unlimited, 3
	for _, terms := range []lockcore.Terms{noWait, share, permit, {Wait: 1500 * time.Millisecond}} {
		_, err := l.Acquire(t.Context(), "k", terms)
		refusedFor(t, err, 0, 1)
	}
	eventually(t, "the key is given back", func() bool {
		h, err := witness.Inspect(t.Context(), lockcore.KindExclusive, "k")
		return err == nil && h.State == lockcore.StateFree
	})
	p.link.Heal()
	for _, limit := range []int{0, lockcore.Unlimited, 3} {
		if err := take(t, l, "k", lockcore.Terms{Limit: limit, Wait: 30 * time.Second}).Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// More replicas than there are: the error says how many have acknowledged.
func TestReplicaAcksTooMany(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	l := p.on(p.master, 2)
	var err error
	eventually(t, "one replica acknowledges in time", func() bool {
		_, err = l.Acquire(t.Context(), "k", noWait)
		few, ok := errors.AsType[*lockcore.ReplicaAcksError](err)
		return !ok || few.Acked > 0
	})
	refusedFor(t, err, 1, 2)
}

// A renewal that no replica has does not count either: whoever follows on the promoted replica finds the holder canceled.
func TestReplicaAcksRenewal(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p, control := newPair(t), redistest.NewControl(t)
	a, b := p.on(p.master, 1), p.on(p.replica, 0)
	start := time.Now()
	first := take(t, a, "k", lockcore.Terms{})
	p.silence()
	eventually(t, "the master has a renewal that the replica has not", func() bool { return time.Since(start) > 2500*time.Millisecond })
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

// With a replica in step a lease is renewed, extended, handed off and rotated as ever, by one command and a WAIT beside it.
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
	if s := count.String(); s != "acquire 1, wait 1" {
		t.Errorf("sent: %s", s)
	}
	eventually(t, "it has been renewed for as long as a lease, each time with a WAIT", func() bool {
		n := count.Count("renew")
		return n >= 4 && count.Count("wait") == 1+n
	})
	if err := context.Cause(le.Context()); err != nil {
		t.Error(err)
	}
	if err := le.Release(t.Context()); err != nil {
		t.Error(err)
	}
	turns := contend(t, []*lockcore.Locker{l, p.on(p.master, 1)}, 2000)
	if turns() == 0 || count.Count("rotate") == 0 {
		t.Errorf("inconclusive: %s", count)
	}
}

// contend has both Lockers take turns on one key, up to limit in all, and returns when it is done; never two inside.
func contend(t *testing.T, lockers []*lockcore.Locker, limit int64) (turns func() int64) {
	t.Helper()
	var inside, n atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n.Load() < limit {
				le, err := lockers[i%len(lockers)].Acquire(t.Context(), "hot", lockcore.Terms{Wait: 20 * time.Second})
				if err != nil {
					t.Error(err)
					return
				}
				n.Add(1)
				if inside.Add(1) != 1 {
					t.Error("two inside")
				}
				inside.Add(-1)
				_ = le.Release(t.Context())
			}
		})
	}
	wg.Wait()
	return n.Load
}
