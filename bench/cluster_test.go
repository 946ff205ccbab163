package main

import (
	"encoding/json"
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
	addrs := c.clusterAddrs()
	if len(addrs) != primaries {
		t.Fatalf("nodes %v", addrs)
	}
	rdb := newClient(setup{addr: c.addr, cluster: addrs, wire: new(wire.Counter)})
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

// Each library completes operations on a Cluster, without a violation.
func TestClusterScenario(t *testing.T) {
	newServer(t)
	var out strings.Builder
	if err := bench(t.Context(), []string{"-scenario", "par-cluster", "-for", "200ms", "-rounds", "1", "-json"}, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(out.String()) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if n++; r.OpsPerS < 1 || r.CmdsPerOp < 1 || r.Violations != 0 {
			t.Errorf("implausible: %s", line)
		}
	}
	if n != 6 {
		t.Errorf("%d libraries, want 6", n)
	}
}

// Without a Cluster the scenario is reported as not measured, and run returns no error.
func TestClusterMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, _ := scenarioNamed("par-cluster")
	var r report
	if err := r.run(t.Context(), &server{}, s, io.Discard); err != nil {
		t.Fatal(err)
	}
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "par-cluster: bench: no Redis Cluster") || r.broken == nil {
		t.Errorf("failures %q, broken %v", r.failures, r.broken)
	}
}
