package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	checkTime = 20 * time.Second // of one check
	runTime   = 2 * time.Minute  // of all checks, if Redis does not respond
)

// Run checks on your own Redis the promises of GUARANTEES.md that a client can observe. It supports
// Redis, Valkey and providers: a single server, a server behind Sentinel, or a Cluster. Pass the
// arguments that you pass to lockcore.New. Run uses only Prefix, NoGroups and ReplicaAcks of o, and
// Terms.Lease in the first check. Each promise is a subtest.
//
//	func TestRedis(t *testing.T) {
//		rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
//		defer rdb.Close()
//		locktest.Run(t, rdb, lockcore.Options{})
//	}
//
// Run it with go test -count=1 -v. Without -count=1, go test repeats a cached result even if the
// server has changed. Only -v shows the warnings. Log lines of go-redis about failed connections
// are expected.
//
// Effects on the server:
//
//   - Run may run next to your own traffic and next to other Runs. It adds only keys with
//     random names under the Prefix.
//   - A user with the least rights suffices. Run needs no FLUSHALL, CONFIG, DEBUG, KEYS or SCAN.
//   - It deletes its keys at the end, even if it fails. If the process dies first, their TTLs end
//     within a day.
//   - It takes half a minute, about 20 s with -short, 2 min at most. It uses about 25 connections
//     at a time.
//
// The first check is [doctor.Check]. Run logs all findings. A problem fails the check, except for
// latency and clock drift, because a busy machine may look like that. The other checks simulate
// several processes by several Lockers. To cut connections, Run makes a client like yours. With a
// failover client or a wrapper it cannot. Then it injects no network faults: a dead holder is a
// holder that does not renew, and the checks that need more are skipped.
//
// Limits:
//
//   - Run shows the promises under the present conditions. It does not show what a failover or a
//     restart loses.
//   - It does not work in a testing/synctest bubble.
//   - A client for which lockcore.New returns an error, such as a *redis.Ring, fails t at once.
func Run(t *testing.T, rdb redis.UniversalClient, o lockcore.Options) {
	t.Helper()
	run(t, newSuite(o, testing.Short(), rdb))
}

// RunQuorum is [Run] for the servers of [lockcore.NewQuorum]. It skips what a majority of servers does
// not support. A server that has started less than a minute ago does not vote in it.
func RunQuorum(t *testing.T, masters []*redis.Client, o lockcore.Options) {
	t.Helper()
	run(t, quorumSuite(masters, o, testing.Short()))
}

func quorumSuite(masters []*redis.Client, o lockcore.Options, short bool) *suite {
	servers := make([]redis.UniversalClient, len(masters))
	for i, m := range masters {
		servers[i] = m
	}
	s := newSuite(o, short, servers...)
	s.masters, s.o.Terms.Lease = masters, longLease
	return s
}

func run(t *testing.T, s *suite) {
	t.Helper()
	if err := s.usable(t.Context()); err != nil {
		t.Fatalf("locktest: run: %v", err)
	}
	defer s.clean(t) // not a Cleanup, because the caller closes rdb in a defer too
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			if s.masters != nil && c.alone {
				t.Skip("a majority of servers does not support it")
			}
			s.try(t, c)
		})
	}
}

// check is one promise and the function that checks it.
type check struct {
	name  string
	run   func(*trial)
	alone bool // it needs one Redis
}

// checks returns the checks in the order that helps to read a failure: defects of the Redis come
// first.
func checks() []check {
	return []check{
		{name: "doctor", run: (*trial).doctor},
		{name: "one holder at a time in FIFO order with growing tokens", run: (*trial).contention},
		{name: "tokens grow after the data is lost", run: (*trial).tokens},
		{name: "a nested call enters and sends nothing", run: (*trial).reentry},
		{name: "calls of a process are served in order", run: (*trial).order},
		{name: "a message wakes a waiter", run: (*trial).wakes},
		{name: "waiting is bounded", run: (*trial).waits},
		{name: "the watchdog renews many leases", run: (*trial).keeps},
		{name: "the key of a dead holder is granted after its ctx has ended", run: (*trial).deadHolder},
		{name: "an expired lease is not revived", run: (*trial).ranOut},
		{name: "a late renewal revives nothing", run: (*trial).lateRenewal},
		{name: "lost requests and replies count once", run: (*trial).lostReplies},
		{name: "revoke frees nothing under a running handler", run: (*trial).revoke},
		{name: "minHold keeps the key and clear frees it", run: (*trial).minHold},
		{name: "permits never exceed the limit", run: (*trial).permits, alone: true},
		{name: "a writer is alone and no reader overtakes it", run: (*trial).readers, alone: true},
		{name: "a ticket transfers a hold once", run: (*trial).ticket, alone: true},
		{name: "one call runs and all calls get its record", run: (*trial).records, alone: true},
		{name: "a record expires after its keep", run: (*trial).keep, alone: true},
		{name: "a failed run runs again", run: (*trial).failure, alone: true},
		{name: "another fingerprint is refused", run: (*trial).fingerprint, alone: true},
		{name: "an abandoned key is taken over or refused", run: (*trial).abandoned, alone: true},
		{name: "every key has a TTL", run: (*trial).allTTLs},
	}
}

// suite is the state of one Run.
type suite struct {
	servers []redis.UniversalClient
	masters []*redis.Client // the servers of a quorum, otherwise nil
	given   lockcore.Options
	o       lockcore.Options // options of the Lockers
	id      string           // part of every key
	short   bool
	end     time.Time

	mu      sync.Mutex
	used    map[storedKeys]struct{}
	lockers []string // ids of the Lockers
}

func newSuite(o lockcore.Options, short bool, servers ...redis.UniversalClient) *suite {
	return &suite{
		servers: servers, given: o, o: lockcore.Options{Prefix: o.Prefix, NoGroups: o.NoGroups, ReplicaAcks: o.ReplicaAcks},
		id: rand.Text(), short: short, end: time.Now().Add(runTime), used: map[storedKeys]struct{}{},
	}
}

// usable makes one request, so that an unavailable Redis fails once.
func (s *suite) usable(ctx context.Context) error {
	locks, err := s.open(s.servers, s.masters)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime/2)
	defer cancel()
	_, err = locks.Inspect(ctx, event.KindExclusive, "locktest:"+s.id)
	return errors.Join(err, locks.Close(ctx))
}

// open returns a Locker on one server, or on masters if there are any.
func (s *suite) open(servers []redis.UniversalClient, masters []*redis.Client) (*lockcore.Locker, error) {
	if masters != nil {
		return lockcore.NewQuorum(masters, s.o)
	}
	return lockcore.New(servers[0], s.o)
}

// try runs one check.
func (s *suite) try(tb testing.TB, c check) {
	tb.Helper()
	end := time.Now().Add(checkTime)
	if end.After(s.end) {
		end = s.end
	}
	ctx, cancel := context.WithDeadline(tb.Context(), end)
	defer cancel()
	c.run(&trial{TB: tb, suite: s, ctx: ctx})
}

// key returns a name that no other Run uses. The suite deletes its keys in Redis at the end.
func (s *suite) key(name string) string {
	key := "locktest:" + s.id + ":" + name
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, keys := range s.stored(key) {
		s.used[keys] = struct{}{}
	}
	return key
}

// storedKeys are the names in Redis of a key: its hash, its queue and its shares.
type storedKeys [3]string

// stored returns the names in Redis of a key of the suite, for each kind.
func (s *suite) stored(key string) (names [2]storedKeys) {
	prefix := s.o.Prefix
	if prefix == "" {
		prefix = "holdfast"
	}
	for i, kind := range []string{"x", "o"} {
		hash := prefix + ":2:" + kind + ":{" + key + "}"
		names[i] = storedKeys{hash, hash + ":q", hash + ":s"}
	}
	return names
}

// These commands are scripts, because the user may have no rights but those that the scripts of a
// Locker need.
const (
	deleteKeys = `return redis.call('DEL', unpack(KEYS))`
	keyTTLs    = `return {redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2]), redis.call('PTTL', KEYS[3])}`
)

// forget deletes keys, and how many calls of each Locker wait for them, without the knowledge of the
// Lockers.
func (s *suite) forget(ctx context.Context, keys storedKeys) error {
	s.mu.Lock()
	names := keys[:]
	for _, id := range s.lockers {
		names = append(names, keys[1]+":"+id)
	}
	s.mu.Unlock()
	var errs []error
	for _, rdb := range s.servers {
		errs = append(errs, rdb.Eval(ctx, deleteKeys, names).Err())
	}
	return errors.Join(errs...)
}

// ttls returns the TTL of each key in Redis, in ms, one server after the other: -1 for a key without a
// TTL, -2 for a missing key.
func (s *suite) ttls(ctx context.Context, keys storedKeys) (all []int64, err error) {
	for _, rdb := range s.servers {
		one, err := rdb.Eval(ctx, keyTTLs, keys[:]).Int64Slice()
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

// inRedis returns the keys that were used.
func (s *suite) inRedis() []storedKeys {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]storedKeys, 0, len(s.used))
	for keys := range s.used {
		all = append(all, keys)
	}
	return all
}

func (s *suite) clean(tb testing.TB) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	for _, keys := range s.inRedis() {
		if err := s.forget(ctx, keys); err != nil {
			tb.Errorf("locktest: cannot delete the keys of the run: %v", fmt.Errorf("%s: %w", keys[0], err))
			return
		}
	}
}
