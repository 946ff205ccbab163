//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	slots   = 16384
	masters = 3
)

// Shards is a Redis Cluster of three primaries with a replica each. A node that does not reply for
// a second counts as failed. Only the goroutine of the test may call the methods.
type Shards struct {
	tb    testing.TB
	nodes []*Server
	ids   map[string]string // by address
}

// Cluster starts Shards on free ports of the loopback interface, and stops them when the test ends.
// It returns when all slots are served and every replica is in sync. args are passed to all six
// servers. It skips or fails like [Real].
func Cluster(tb testing.TB, args ...string) *Shards {
	tb.Helper()
	s := &Shards{tb: tb, ids: map[string]string{}}
	bus := map[*Server]int{}
	for range 2 * masters {
		port := freePort(tb)
		node := Real(tb, append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port), "--cluster-node-timeout", "1000", "--repl-diskless-sync-delay", "0",
			"--repl-ping-replica-period", "1", "--cluster-allow-replica-migration", "no",
		}, args...)...)
		s.nodes, bus[node] = append(s.nodes, node), port
	}
	for i := range s.nodes {
		s.join(i, bus)
	}
	for i, replica := range s.nodes[masters:] {
		settle(tb, "the cluster", func(ctx context.Context) error { // until the replica knows its primary
			return ask(ctx, replica.Addr(), func(ctx context.Context, c *redis.Client) error {
				return c.ClusterReplicate(ctx, s.ids[s.nodes[i].Addr()]).Err()
			})
		})
	}
	settle(tb, "the cluster", s.ready)
	return s
}

// join introduces node i to the first one, and assigns its slots if it is a primary.
func (s *Shards) join(i int, bus map[*Server]int) {
	s.tb.Helper()
	node, first := s.nodes[i], s.nodes[0]
	s.ids[node.Addr()] = fmt.Sprint(s.must(node, "CLUSTER", "MYID").Val())
	s.must(node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	if i < masters {
		s.must(node, "CLUSTER", "ADDSLOTSRANGE", slots*i/masters, slots*(i+1)/masters-1)
	}
	if i > 0 {
		s.must(node, "CLUSTER", "MEET", "127.0.0.1", first.port, bus[first])
	}
}

func (s *Shards) ready(ctx context.Context) error {
	for i, node := range s.nodes {
		err := ask(ctx, node.Addr(), func(ctx context.Context, c *redis.Client) error {
			if err := s.serves(ctx, c); err != nil || i < masters {
				return err
			}
			return says(ctx, c, "replication", "role:slave", "master_link_status:up")
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// serves reports whether a node sees all slots served by three primaries, and knows their replicas.
func (s *Shards) serves(ctx context.Context, c *redis.Client) error {
	info, err := c.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	ranges, err := c.ClusterSlots(ctx).Result() //nolint:staticcheck // its reply suffices
	if err != nil {
		return err
	}
	replicas := 0
	for _, r := range ranges {
		replicas += len(r.Nodes) - 1
	}
	if !contains(info, "cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:3") || replicas < masters {
		return fmt.Errorf("%s: %d replicas, %s", c.Options().Addr, replicas, info)
	}
	return nil
}

// Options returns fresh options for a client of the cluster.
func (s *Shards) Options() *redis.ClusterOptions {
	o := &redis.ClusterOptions{}
	for _, node := range s.nodes {
		o.Addrs = append(o.Addrs, node.Addr())
	}
	return o
}

// Client returns a client that is closed when the test ends. Each edit may change the options
// before.
func (s *Shards) Client(tb testing.TB, edit ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	o := s.Options()
	for _, e := range edit {
		e(o)
	}
	c := redis.NewClusterClient(o)
	tb.Cleanup(func() { _ = c.Close() }) // the test may have closed it
	return c
}

// Slot returns the slot of key.
func (s *Shards) Slot(key string) int {
	s.tb.Helper()
	var slot int64
	s.first(func(ctx context.Context, c *redis.Client) (err error) {
		slot, err = c.ClusterKeySlot(ctx, key).Result()
		return err
	})
	return int(slot)
}

// Master returns the server that has slot, as the first node that replies sees it. Stop kills it
// with SIGKILL.
func (s *Shards) Master(slot int) *Server {
	s.tb.Helper()
	return s.owners(slot)[0]
}

// Replica returns the replica of the primary that has slot.
func (s *Shards) Replica(slot int) *Server {
	s.tb.Helper()
	owners := s.owners(slot)
	if len(owners) < 2 {
		s.tb.Fatalf("slot %d has no replica", slot)
	}
	return owners[1]
}

// Masters returns the servers that have slots.
func (s *Shards) Masters() []*Server {
	s.tb.Helper()
	var all []*Server
	seen := map[*Server]bool{}
	for _, r := range s.slots() {
		if m := s.named(r.Nodes[0].Addr); !seen[m] {
			all, seen[m] = append(all, m), true
		}
	}
	return all
}

func (s *Shards) owners(slot int) []*Server {
	s.tb.Helper()
	var owners []*Server
	for _, r := range s.slots() {
		if r.Start <= slot && slot <= r.End {
			for _, node := range r.Nodes {
				owners = append(owners, s.named(node.Addr))
			}
			return owners
		}
	}
	s.tb.Fatalf("no server has slot %d", slot)
	return nil
}

func (s *Shards) slots() (ranges []redis.ClusterSlot) {
	s.tb.Helper()
	s.first(func(ctx context.Context, c *redis.Client) (err error) {
		ranges, err = c.ClusterSlots(ctx).Result() //nolint:staticcheck // its reply suffices
		return err
	})
	return ranges
}

// first calls do on the nodes until one replies.
func (s *Shards) first(do func(context.Context, *redis.Client) error) {
	s.tb.Helper()
	settle(s.tb, "a node of the cluster", func(ctx context.Context) (err error) {
		for _, node := range s.nodes {
			if err = ask(ctx, node.Addr(), do); err == nil {
				return nil
			}
		}
		return err
	})
}

func (s *Shards) named(addr string) *Server {
	s.tb.Helper()
	for _, node := range s.nodes {
		if node.Addr() == addr {
			return node
		}
	}
	s.tb.Fatalf("%q is not a node of the cluster", addr)
	return nil
}

// Failover waits until a server other than old has slot, and all other nodes report that all slots
// are served. It returns the new primary.
func (s *Shards) Failover(slot int, old *Server) *Server {
	s.tb.Helper()
	settle(s.tb, "the failover", func(ctx context.Context) error {
		for _, node := range s.nodes {
			if node == old {
				continue
			}
			if err := ask(ctx, node.Addr(), func(ctx context.Context, c *redis.Client) error {
				info, err := c.ClusterInfo(ctx).Result()
				if err == nil && !contains(info, "cluster_state:ok") {
					err = errors.New(info)
				}
				return err
			}); err != nil {
				return err
			}
		}
		if s.Master(slot) == old {
			return errors.New("the old master has the slot")
		}
		return nil
	})
	return s.Master(slot)
}

// Plan replaces the working primary of slot by its replica, as for maintenance. It returns when the
// replica is the primary.
func (s *Shards) Plan(slot int) {
	s.tb.Helper()
	old := s.Master(slot)
	s.must(s.Replica(slot), "CLUSTER", "FAILOVER")
	s.Failover(slot, old)
}

// must runs a command on a server, and fails the test on an error.
func (s *Shards) must(on *Server, args ...any) *redis.Cmd {
	s.tb.Helper()
	c := on.Client(s.tb, func(o *redis.Options) { o.DialTimeout, o.ReadTimeout, o.MaxRetries = mustTime, mustTime, -1 })
	defer func() { _ = c.Close() }()
	cmd := c.Do(s.tb.Context(), args...)
	if err := cmd.Err(); err != nil {
		s.tb.Fatalf("%v: %v", args, err)
	}
	return cmd
}
