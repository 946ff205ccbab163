package redis_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

var stopRounds = flag.Int("rounds", 2, "how often TestClusterStoppedMaster stops a master, for each lease and each seed")

// One primary of a cluster stops before the first renewal. Only leases on its own keys are lost. No
// replica replaces the primary, and the other primaries continue to serve, so only the Locker
// decides about the leases on them.
// Shows: P4
func TestClusterStoppedMaster(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	s := redistest.Cluster(t, "--cluster-require-full-coverage", "no", "--cluster-replica-no-failover", "yes")
	stopped, on := s.Masters()[0], map[string]bool{}
	for i := range 60 {
		key := fmt.Sprint(i)
		on[key] = s.Master(s.Slot(storedNames(event.KindExclusive, key)[0])) == stopped
	}
	for _, lease := range []time.Duration{3 * time.Second, 10 * time.Second} {
		for _, seeds := range []string{"all nodes", "the stopped node"} {
			held, lost := 0, 0
			for range *stopRounds {
				h, l := stopMaster(t, s, stopped, on, seeds, lease)
				held, lost = held+h, lost+l
			}
			t.Logf("leases of %v, seeds: %s: %d of %d leases on healthy masters were lost in %d rounds", lease, seeds, lost, held, *stopRounds)
			if lost > 0 || held < *stopRounds*20 {
				t.Errorf("leases of %v, seeds: %s: %d of %d leases on healthy masters were lost", lease, seeds, lost, held)
			}
		}
	}
}

// stopMaster acquires all keys of on, and stops one primary for 8 s. It returns how many leases on
// the other two it held and lost. on[key] is true if the stopped primary has the key.
func stopMaster(t *testing.T, s *redistest.Shards, stopped *redistest.Server, on map[string]bool, seeds string, lease time.Duration) (held, lost int) {
	t.Helper()
	rdb := s.Client(t, func(o *redis.ClusterOptions) {
		if seeds == "the stopped node" {
			o.Addrs = []string{stopped.Addr()}
		}
	})
	l, err := lockcore.New(rdb, lockcore.Options{Terms: lockcore.Terms{Lease: lease}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close(context.Background()) }() // the leases on the stopped primary are lost
	var healthy, others []*lockcore.Lease
	for key, stops := range on {
		le, err := l.Acquire(t.Context(), key, lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		if stops {
			others = append(others, le)
		} else {
			healthy = append(healthy, le)
		}
	}
	stopped.Pause()
	time.Sleep(8 * time.Second)
	stopped.Resume()
	time.Sleep(lease / 2) // a renewal that was waiting has its reply
	for _, le := range healthy {
		if le.Release(t.Context()) != nil {
			lost++
		}
	}
	for _, le := range others {
		_ = le.Release(t.Context())
	}
	return len(healthy), lost
}

// All clients of a Locker share the first reply to CLUSTER SLOTS, and send no other command about
// the cluster. So no first renewal or release waits for a node that does not have its key.
// Shows: P4
func TestClusterSlotsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, count := redistest.Bubble(t), new(redistest.Counter)
		o := m.Options()
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, Dialer: count.Dial(o.Dialer)})
		l := lockerOn(t, rdb, lockcore.Options{})
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second) // it is renewed
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if n := count.Count("cluster") + count.Count("command"); n != 1 || count.Count("renew") == 0 {
			t.Errorf("%d commands about the cluster, want 1: %v", n, count.Commands())
		}
	})
}
