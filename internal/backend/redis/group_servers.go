package redis

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// serverGroups contains the groups of each server.
type serverGroups struct {
	report func(calls int, waited time.Duration)
	ends   redis.UniversalClient // *redis.Client or *redis.ClusterClient
	byAddr sync.Map              // *groups by address, "" for a single server; an entry stays after its server has left the cluster

	mu      sync.Mutex // held while an entry is made, and by stop, so that an entry made after stop is also stopped
	stopped bool
}

// groupCalls makes c send calls in groups. It has no effect on a client of the user, and none with
// ReplicaAcks, because WAIT counts only the writes of its own connection. report, if it is not nil,
// is called after each group.
func (c *conn) groupCalls(report func(calls int, waited time.Duration)) {
	if c.own && c.acks.N == 0 {
		c.groups = &serverGroups{report: report, ends: c.ends}
	}
}

// eval sends a script to the server of its key and waits for its reply.
func (s *serverGroups) eval(ctx *limited, on redis.UniversalClient, cmd wire.Command, now time.Time) (any, error) {
	server, addr := s.ends, ""
	if cluster, ok := s.ends.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx.own(), cmd.Key())
		if err != nil { // send the call alone, to get the error of the ClusterClient
			return eval(ctx, on, cmd)
		}
		server, addr, now = node, node.Options().Addr, time.Now() // MasterForKey may have waited for the slots
	}
	return s.at(addr).eval(ctx, server, on, cmd, now)
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

// stop fails the calls that wait for a group. Each later call is sent alone.
func (s *serverGroups) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.byAddr.Range(func(_, g any) bool {
		g.(*groups).stop() //nolint:errcheck,forcetypeassert // nothing else is stored
		return true
	})
}

// wait waits for the goroutines of all groups. After stop these end when their connections are
// closed.
func (s *serverGroups) wait() {
	s.byAddr.Range(func(_, g any) bool {
		g.(*groups).senders.Wait() //nolint:errcheck,forcetypeassert // nothing else is stored
		return true
	})
}
