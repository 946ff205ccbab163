package redis

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// serverGroups has the groups of each server.
type serverGroups struct {
	report func(calls int, waited time.Duration)
	ends   redis.UniversalClient // *redis.Client or *redis.ClusterClient
	byAddr sync.Map              // of *groups; "" on a single server. A server that has left a cluster keeps its entry

	mu      sync.Mutex // when an entry is made
	stopped bool
}

// groupCalls makes c send calls in groups, if its clients were made here and no call waits for
// replicas. report is called after each group.
func (c *conn) groupCalls(report func(calls int, waited time.Duration)) {
	if c.own && c.acks.N == 0 {
		if report == nil {
			report = func(int, time.Duration) {}
		}
		c.groups = &serverGroups{report: report, ends: c.ends}
	}
}

// eval sends a script to the server of its key and waits for its reply.
func (s *serverGroups) eval(ctx context.Context, on redis.UniversalClient, script *script, list []any, now time.Time) (any, error) {
	server, addr := s.ends, ""
	if cluster, ok := s.ends.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx, keyOf(list))
		if err != nil { // then the ClusterClient says why
			return eval(ctx, on, script, list)
		}
		server, addr = node, node.Options().Addr
	}
	return s.at(addr).eval(ctx, server, on, script, list, now)
}

// at returns the groups of a server.
func (s *serverGroups) at(addr string) *groups {
	g, ok := s.byAddr.Load(addr)
	if !ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if g, ok = s.byAddr.Load(addr); !ok {
			fresh := newGroups(addr == "", s.report)
			fresh.stopped = s.stopped
			s.byAddr.Store(addr, fresh)
			g = fresh
		}
	}
	return g.(*groups) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// stop fails the calls that wait for a group. From then on each call is sent alone.
func (s *serverGroups) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.byAddr.Range(func(_, g any) bool {
		g.(*groups).stop() //nolint:errcheck,forcetypeassert // nothing else is stored
		return true
	})
}

// wait waits for the goroutines of all groups. After stop they end with their connections.
func (s *serverGroups) wait() {
	s.byAddr.Range(func(_, g any) bool {
		g.(*groups).running.Wait() //nolint:errcheck,forcetypeassert // nothing else is stored
		return true
	})
}
