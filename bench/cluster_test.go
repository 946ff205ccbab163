package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/bench/internal/wire"
)

// Each node of a Cluster has some of the keys. clean empties all nodes, and cpu returns the sum of
// their CPU times.
func TestCluster(t *testing.T) {
	newServer(t) // skips the test without a redis-server
	c, err := startCluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	addrs := c.nodeAddrs()
	if len(addrs) != primaries {
		t.Fatalf("nodes %v", addrs)
	}
	rdb := newClient(setup{addr: c.addr, cluster: addrs, dial: new(wire.Counter).Dial})
	defer rdb.Close()
	for i := range 300 {
		if err := rdb.Set(t.Context(), fmt.Sprint("key", i), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	size := func() (all, least int64) {
		for i, node := range c.nodes() {
			n, err := node.admin.DBSize(t.Context()).Result()
			if err != nil {
				t.Fatal(err)
			}
			if all += n; i == 0 || n < least {
				least = n
			}
		}
		return all, least
	}
	if all, least := size(); all != 300 || least == 0 {
		t.Errorf("%d keys, %d on the node with the fewest", all, least)
	}
	if err := c.clean(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, _ := size(); all != 0 {
		t.Errorf("%d keys after clean", all)
	}
	sum, err := c.cpu(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	alone := &server{admin: c.admin}
	if one, err := alone.cpu(t.Context()); err != nil || sum <= 0 || one <= 0 {
		t.Errorf("CPU of the Cluster %v, of one node %v, %v", sum, one, err)
	}
}

// Each library completes operations on a Cluster.
func TestClusterScenario(t *testing.T) {
	r := measured(t, "-scenario", "par-cluster")
	for _, one := range r.results {
		if one.get(ops) < 1 || one.get(commands) < 1 {
			t.Errorf("implausible: %+v", one)
		}
	}
	if n := len(r.results); n != len(locks) {
		t.Errorf("%d libraries, want %d", n, len(locks))
	}
}

// Without a Cluster the scenario is a failure of the run, and measure returns no error.
func TestClusterMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, _ := scenarioNamed("par-cluster")
	var r report
	if err := r.measure(t.Context(), &server{}, s, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "par-cluster: bench: no Redis Cluster") || r.broken == nil {
		t.Errorf("failures %q, broken %v", r.failures, r.broken)
	}
}
