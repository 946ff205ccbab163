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

	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	checkTime = 20 * time.Second // of one check
	runTime   = 2 * time.Minute  // of all, on a Redis with which nothing goes well
)

// Run shows on a Redis of your own what GUARANTEES.md promises, as far as a client can see it: alone, behind Sentinel or as a
// Cluster, of Redis, Valkey or a provider. Give it what you give lockcore.New; of o only Prefix, NoGroups and ReplicaAcks
// matter, and Terms.Lease for the first check. Each promise is a subtest.
//
//	func TestRedis(t *testing.T) {
//		rdb := redis.NewClient(&redis.Options{Addr: os.Getenv("REDIS_ADDR")})
//		defer rdb.Close()
//		locktest.Run(t, rdb, lockcore.Options{})
//	}
//
// Run it with go test -count=1 -v. Without -count=1, go test repeats a cached result even if the server has changed, and only -v
// shows the warnings. Log lines of go-redis about failed connections are expected.
//
// It may run beside your own traffic, and beside other Runs: it adds only keys of its own, with random names, under the Prefix, so
// that a user with the least rights will do; it needs no FLUSHALL, CONFIG, DEBUG, KEYS or SCAN. It deletes them at the end, also when it fails; if
// the process dies first, their TTLs end within a day. It takes half a minute, about 20 s with -short, 2 min at most, and about 25 connections at
// a time.
//
// The first check is [doctor.Check]. All that it finds is logged, and what is a problem fails it, except for latency and the
// clock's rate, which a busy machine may look like. Several processes are several Lockers here. To cut the connections of one Run
// makes a client as yours, so with a failover client or a wrapper there are no network faults: a dead holder is one that does not renew, and the
// check that needs more is skipped.
//
// It shows the promises under the conditions that hold now: not what a failover loses, nor what a restart forgets. It cannot run in a
// testing/synctest bubble. A client that lockcore.New refuses, as a *redis.Ring, fails t at once.
func Run(t *testing.T, rdb redis.UniversalClient, o lockcore.Options) {
	t.Helper()
	run(t, rdb, o, testing.Short())
}

func run(t *testing.T, rdb redis.UniversalClient, o lockcore.Options, short bool) {
	t.Helper()
	s := newSuite(rdb, o, short)
	if err := s.usable(t.Context()); err != nil {
		t.Fatalf("locktest: run: %v", err)
	}
	defer s.clean(t) // not a Cleanup: the caller closes rdb in a defer, too
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) { s.try(t, c) })
	}
}

// check is one promise and what shows it.
type check struct {
	name string
	run  func(*trial)
}

// checks are in the order in which a reader of a failure wants them: what is the matter with Redis first.
func checks() []check {
	return []check{
		{"doctor", (*trial).doctor},
		{"one holder at a time in turns with growing tokens", (*trial).contention},
		{"tokens grow when the data is gone", (*trial).tokens},
		{"a nested call enters and sends nothing", (*trial).reentry},
		{"calls of a process are served in order", (*trial).order},
		{"a message wakes who waits", (*trial).wakes},
		{"waiting is bounded", (*trial).waits},
		{"the watchdog keeps many keys", (*trial).keeps},
		{"the key of a dead holder is taken after its ctx has ended", (*trial).deadHolder},
		{"what ran out is not revived", (*trial).ranOut},
		{"a late renewal revives nothing", (*trial).lateRenewal},
		{"lost requests and replies count once", (*trial).lostReplies},
		{"revoke frees nothing under a running handler", (*trial).revoke},
		{"minHold keeps the key and clear frees it", (*trial).minHold},
		{"permits never exceed the limit", (*trial).permits},
		{"a writer is alone and no reader overtakes it", (*trial).readers},
		{"a ticket hands a hold over once", (*trial).ticket},
		{"one runs and all have its record", (*trial).records},
		{"a record is forgotten when keep is over", (*trial).keep},
		{"a failed run runs again", (*trial).failure},
		{"another fingerprint is refused", (*trial).fingerprint},
		{"an abandoned key is taken over or refused", (*trial).abandoned},
		{"every key has a TTL", (*trial).ttls},
	}
}

// suite is one Run.
type suite struct {
	rdb   redis.UniversalClient
	given lockcore.Options
	o     lockcore.Options // of the Lockers
	id    string           // part of every key
	short bool
	end   time.Time

	mu   sync.Mutex
	used map[storedKeys]struct{}
}

func newSuite(rdb redis.UniversalClient, o lockcore.Options, short bool) *suite {
	return &suite{
		rdb: rdb, given: o, o: lockcore.Options{Prefix: o.Prefix, NoGroups: o.NoGroups, ReplicaAcks: o.ReplicaAcks},
		id: rand.Text(), short: short, end: time.Now().Add(runTime), used: map[storedKeys]struct{}{},
	}
}

// usable is a first look, so that a Redis that is away fails once.
func (s *suite) usable(ctx context.Context) error {
	locks, err := lockcore.New(s.rdb, s.o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime/2)
	defer cancel()
	_, err = locks.Inspect(ctx, lockcore.KindExclusive, "locktest:"+s.id)
	return errors.Join(err, locks.Close(ctx))
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

// key is a name that nobody else has. What it may become in Redis is deleted at the end.
func (s *suite) key(name string) string {
	key := "locktest:" + s.id + ":" + name
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, keys := range s.stored(key) {
		s.used[keys] = struct{}{}
	}
	return key
}

// storedKeys are the keys in Redis of a key: its hash, its queue and its shares.
type storedKeys [3]string

// stored returns the keys in Redis of a key of the suite, for each kind.
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

// As scripts, for the user may have the right to no more than what the scripts of a Locker use.
const (
	deleteKeys = `return redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])`
	keyTTLs    = `return {redis.call('PTTL', KEYS[1]), redis.call('PTTL', KEYS[2]), redis.call('PTTL', KEYS[3])}`
)

// forget deletes keys behind the Lockers' backs.
func (s *suite) forget(ctx context.Context, keys storedKeys) error {
	return s.rdb.Eval(ctx, deleteKeys, keys[:]).Err()
}

// ttl returns what is left of each key in Redis, in ms: -1 without a TTL, -2 without the key.
func (s *suite) ttl(ctx context.Context, keys storedKeys) ([]int64, error) {
	return s.rdb.Eval(ctx, keyTTLs, keys[:]).Int64Slice()
}

// inRedis are the keys that were used.
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
			tb.Errorf("locktest: what the run has left behind is not deleted: %v", fmt.Errorf("%s: %w", keys[0], err))
			return
		}
	}
}
