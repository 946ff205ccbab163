package redis_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// claimFor acquires a once key.
func claimFor(t *testing.T, l *lockcore.Locker, key string) *lockcore.Lease {
	t.Helper()
	le, rec, err := l.Claim(t.Context(), key, lockcore.Claim{})
	if err != nil || rec != nil {
		t.Fatal(rec, err)
	}
	return le
}

// Complete of a once key continues in the background while no replica acknowledges the record. If
// the link heals during the lease, the promoted replica has the record; otherwise CompletionFailed
// reports ErrReplicaAcks. A replay needs no replicas.
// Shows: P3
func TestReplicaAcksRecord(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	for name, heals := range map[string]bool{"in time": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, heard := newPair(t), new(locktest.Recorder)
			l := lockerFor(t, p.master.Client(t), lockcore.Options{
				ReplicaAcks: lockcore.ReplicaAcks{N: 1}, Terms: lockcore.Terms{Lease: 6 * time.Second}, Observer: heard,
			})
			if err := claimFor(t, l, "done").Complete(t.Context(), []byte("r"), time.Hour); err != nil {
				t.Fatal(err)
			}
			le := claimFor(t, l, "k")
			p.silence()
			if err := le.Complete(t.Context(), []byte("r"), time.Hour); err != nil {
				t.Errorf("Complete: %v, want nil, because it continues in the background", err)
			}
			if _, rec, err := l.Claim(t.Context(), "done", lockcore.Claim{}); err != nil || rec == nil {
				t.Errorf("a replay: %v, %v", rec, err)
			}
			if !heals {
				eventually(t, "the failed completion is reported", func() bool { return len(locktest.EventsOf[event.CompletionFailed](heard)) > 0 })
				err := locktest.EventsOf[event.CompletionFailed](heard)[0].Err
				if !errors.Is(err, lockcore.ErrReplicaAcks) && !errors.Is(err, os.ErrDeadlineExceeded) { // a slow machine may not read the last reply in time
					t.Errorf("reported: %v", err)
				}
				return
			}
			p.link.Heal()
			p.linked()
			if err := l.Close(t.Context()); err != nil { // it waits for the background
				t.Error(err)
			}
			p.promote()
			if _, rec, err := p.on(p.replica, 0).Claim(t.Context(), "k", lockcore.Claim{}); err != nil || rec == nil {
				t.Errorf("on the promoted replica: %v, %v", rec, err)
			}
			if failed := locktest.EventsOf[event.CompletionFailed](heard); len(failed) > 0 {
				t.Error(failed)
			}
		})
	}
}

// The grant that rotate.lua makes at the end of a batch needs replicas too. While the replica does
// not acknowledge, no hold of a hot key begins. When the link heals, holds begin again.
// Shows: P3
func TestReplicaAcksRotate(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t)
	l := p.on(p.master, 1) // the only Locker, so that its own grant follows each of its batches
	var over atomic.Bool
	var turns, refused atomic.Int64
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for !over.Load() {
				le, err := l.Acquire(t.Context(), "hot", lockcore.Terms{Wait: time.Second})
				if errors.Is(err, lockcore.ErrReplicaAcks) {
					refused.Add(1)
				}
				if err == nil {
					turns.Add(1)
					_ = le.Release(t.Context())
				}
			}
		})
	}
	more := func(n int64) {
		at := turns.Load()
		eventually(t, "more turns", func() bool { return turns.Load() > at+n })
	}
	more(500)
	p.link.Silence() // silence would wait for a moment without commands under way, and there is none
	atRest := func() bool { at := turns.Load(); time.Sleep(600 * time.Millisecond); return turns.Load() == at }
	eventually(t, "the acknowledged grants have ended", atRest)
	eventually(t, "refusals", func() bool { return refused.Load() > 16 })
	if !atRest() {
		t.Error("holds began without replicas")
	}
	p.link.Heal()
	more(500)
	over.Store(true)
	wg.Wait()
}

// With min-replicas-to-write a primary without its replica refuses grants, and the error has the
// text of Redis. A held lease is lost. When the replica is back, waiters get the keys.
// Shows: P3
func TestMinReplicas(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	p := newPair(t, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "1", "--repl-ping-replica-period", "1")
	l := p.on(p.master, 0)
	eventually(t, "the master counts its replica", func() bool {
		return strings.Contains(p.master.Client(t).Info(t.Context(), "replication").Val(), "min_slaves_good_slaves:1")
	})
	le := take(t, l, "k", lockcore.Terms{Wait: 20 * time.Second})
	p.silence()
	<-le.Context().Done()
	if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	_, err := l.Acquire(t.Context(), "k2", noWait)
	if !errors.Is(err, lockcore.ErrUnavailable) || !redis.IsNoReplicasError(err) && !strings.Contains(err.Error(), "NOREPLICAS") {
		t.Errorf("%v, want ErrUnavailable and NOREPLICAS", err)
	}
	p.link.Heal()
	for _, key := range []string{"k", "k2"} {
		if err := take(t, l, key, lockcore.Terms{Wait: 30 * time.Second}).Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Validate checks the bounds of ReplicaAcks. New refuses ReplicaAcks with a client of unknown type,
// because it cannot know on which connection that client sends WAIT.
func TestReplicaAcksOptions(t *testing.T) {
	t.Parallel()
	for want, r := range map[string]lockcore.ReplicaAcks{
		"N is -1":             {N: -1},
		"without an N":        {Timeout: time.Second},
		"Timeout is 9ms":      {N: 1, Timeout: 9 * time.Millisecond},
		"Timeout is 751ms":    {N: 1, Timeout: 751 * time.Millisecond},
		"Timeout is -1s":      {N: 1, Timeout: -time.Second},
		"ReplicaAcks.N is -2": {N: -2, Timeout: time.Second},
	} {
		if err := (lockcore.Options{ReplicaAcks: r}).Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", r, err, want)
		}
	}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	type wrapper struct{ redis.UniversalClient }
	o := lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1, Timeout: 750 * time.Millisecond}}
	if _, err := lockcore.New(wrapper{rdb}, o); err == nil || !strings.Contains(err.Error(), "wrapper") {
		t.Errorf("a wrapper: %v", err)
	}
	if _, err := lockcore.New(wrapper{rdb}, lockcore.Options{}); err != nil {
		t.Errorf("a wrapper without ReplicaAcks: %v", err)
	}
}

// In a cluster WAIT goes to the primary of the key, and only the replica of that primary counts.
// The renewals of a key follow it while its slot is migrated.
// Shows: P4
func TestReplicaAcksCluster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Cluster(t)
	l := lockerFor(t, s.Client(t), lockcore.Options{ReplicaAcks: lockcore.ReplicaAcks{N: 1}, Terms: lockcore.Terms{Lease: 3 * time.Second}})
	slot := func(key string) int { return s.Slot("holdfast:2:x:{" + key + "}") }
	frozen := s.Replica(slot("k"))
	for _, key := range []string{"k", "a", "b", "c", "d", "e"} {
		_ = take(t, l, key, lockcore.Terms{}).Release(t.Context())
	}
	frozen.Pause()
	others := 0
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		if s.Master(slot(key)) == s.Master(slot("k")) {
			continue
		}
		others++
		if err := take(t, l, key, lockcore.Terms{Wait: 20 * time.Second}).Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if others == 0 {
		t.Error("inconclusive: all keys are on one node")
	}
	_, err := l.Acquire(t.Context(), "k", noWait)
	refusedFor(t, err, 0, 1)
	frozen.Resume()

	count := new(locktest.Recorder)
	l = lockerFor(t, s.Client(t), lockcore.Options{
		ReplicaAcks: lockcore.ReplicaAcks{N: 1}, Terms: lockcore.Terms{Lease: 3 * time.Second}, Observer: count,
	})
	_ = take(t, l, "k", lockcore.Terms{Wait: 20 * time.Second}).Release(t.Context())
	var to *redistest.Server
	for _, to = range s.Masters() {
		if to != s.Master(slot("k")) {
			break
		}
	}
	held := take(t, l, "k", lockcore.Terms{})
	m := s.Begin(slot("k"), to)
	m.Keys()
	before, _ := renewals(count)
	eventually(t, "renewals of a key in a migrating slot", func() bool { kept, _ := renewals(count); return kept > before+1 })
	m.End()
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := take(t, l, "k", lockcore.Terms{Wait: 20 * time.Second}).Release(t.Context()); err != nil {
		t.Error(err)
	}
	if _, n := renewals(count); n > 0 {
		t.Errorf("%d renewals failed", n)
	}
}

// renewals returns how many renewals have kept a lease, and how many have failed.
func renewals(r *locktest.Recorder) (kept, failed int) {
	for _, e := range locktest.EventsOf[event.RenewPass](r) {
		kept, failed = kept+e.Kept, failed+e.Failed
	}
	return kept, failed
}
