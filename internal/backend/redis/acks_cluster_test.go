package redis_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// bus returns a free port for the cluster bus of a node.
func bus(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return portOf(l.Addr().String())
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr) // of a TCP listener
	return port
}

func myID(t *testing.T, c *redis.Client) string {
	t.Helper()
	id, err := c.Do(t.Context(), "CLUSTER", "MYID").Text()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// joined returns a new node without slots, in the cluster of known.
func joined(t *testing.T, known *redis.Client, epoch int) *redistest.Server {
	t.Helper()
	port := bus(t)
	s := redistest.Real(t, "--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0")
	c := s.Client(t)
	send(t, c, "CLUSTER", "SET-CONFIG-EPOCH", epoch)
	send(t, known, "CLUSTER", "MEET", "127.0.0.1", portOf(s.Addr()), port)
	id := myID(t, c)
	eventually(t, "they know each other", func() bool {
		return strings.Contains(c.ClusterInfo(t.Context()).Val(), "cluster_state:ok") && strings.Contains(known.ClusterNodes(t.Context()).Val(), id)
	})
	return s
}

func send(t *testing.T, c *redis.Client, args ...any) {
	t.Helper()
	if err := c.Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(args, err)
	}
}

// grown returns a new primary without slots, which has a replica, in the cluster of old.
func grown(t *testing.T, old *redis.Client) *redis.Client {
	t.Helper()
	fresh, replica := joined(t, old, 77).Client(t), joined(t, old, 78).Client(t)
	id := myID(t, fresh)
	eventually(t, "the new master has a replica", func() bool { return replica.ClusterReplicate(t.Context(), id).Err() == nil })
	eventually(t, "the replica is in sync", func() bool {
		return strings.Contains(replica.Info(t.Context(), "replication").Val(), "master_link_status:up")
	})
	return fresh
}

// A new primary gets its first slot. go-redis does not show a primary without slots, so renewals of
// a key that was moved there fail until the slot is assigned. The next renewal after that succeeds
// before the lease ends.
// Shows: P4
func TestReplicaAcksNewMaster(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Cluster(t)
	slot := s.Slot("holdfast:2:x:{k}")
	old := s.Master(slot).Client(t)
	fresh := grown(t, old)
	count := new(locktest.Recorder)
	l := lockerFor(t, s.Client(t), lockcore.Options{
		ReplicaAcks: lockcore.ReplicaAcks{N: 1}, Terms: lockcore.Terms{Lease: 3 * time.Second}, Observer: count,
	})
	held := take(t, l, "k", lockcore.Terms{})
	send(t, fresh, "CLUSTER", "SETSLOT", slot, "IMPORTING", myID(t, old))
	send(t, old, "CLUSTER", "SETSLOT", slot, "MIGRATING", myID(t, fresh))
	args := []any{"MIGRATE", "127.0.0.1", portOf(fresh.Options().Addr), "", 0, 1000, "KEYS"}
	for _, key := range old.ClusterGetKeysInSlot(t.Context(), slot, 100).Val() {
		args = append(args, key)
	}
	send(t, old, args...)
	renewed := func(le *lockcore.Lease) {
		t.Helper()
		before, _ := renewals(count)
		eventually(t, "renewals", func() bool {
			kept, failed := renewals(count)
			if err := context.Cause(le.Context()); err != nil {
				t.Fatalf("%v after %d failed renewals", err, failed)
			}
			return kept > before+2
		})
	}
	for _, c := range []*redis.Client{fresh, old} { // until now, scripts with two keys get TRYAGAIN
		send(t, c, "CLUSTER", "SETSLOT", slot, "NODE", myID(t, fresh))
	}
	renewed(held)
	if err := held.Extend(t.Context(), 4*time.Second); err != nil {
		t.Error(err)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := take(t, l, "k", lockcore.Terms{Wait: 20 * time.Second}).Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := claimFor(t, l, "k").Complete(t.Context(), []byte("r"), time.Hour); err != nil {
		t.Error(err)
	}
}
