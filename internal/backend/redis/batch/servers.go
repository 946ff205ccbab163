package batch

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

// Servers contains the groups of each server.
type Servers struct {
	report func(calls int, waited time.Duration)
	ends   redis.UniversalClient // *redis.Client or *redis.ClusterClient
	byAddr sync.Map              // *groups by address, "" for a single server; an entry stays after its server has left the cluster

	mu      sync.Mutex // held while an entry is made, and by stop, so that an entry made after stop is also stopped
	stopped bool
}

// New returns the groups of calls whose connections are those of ends, a *redis.Client or a
// *redis.ClusterClient. report, if it is not nil, is called after each group.
func New(ends redis.UniversalClient, report func(calls int, waited time.Duration)) *Servers {
	return &Servers{report: report, ends: ends}
}

// Send sends a script to the server of its key and waits for its reply.
func (s *Servers) Send(ctx *conn.Limited, on redis.UniversalClient, cmd wire.Command, now time.Time) (any, error) {
	server, addr := s.ends, ""
	if cluster, ok := s.ends.(*redis.ClusterClient); ok {
		node, err := cluster.MasterForKey(ctx.Own(), cmd.Key())
		if err != nil { // send the call alone, to get the error of the ClusterClient
			return conn.Send(ctx, on, cmd)
		}
		server, addr, now = node, node.Options().Addr, time.Now() // MasterForKey may have waited for the slots
	}
	return s.at(addr).eval(ctx, server, on, cmd, now)
}

// at returns the groups of a server.
func (s *Servers) at(addr string) *groups {
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

// Stop fails the calls that wait for a group. Each later call is sent alone.
func (s *Servers) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.byAddr.Range(func(_, g any) bool {
		g.(*groups).stop() //nolint:errcheck,forcetypeassert // nothing else is stored
		return true
	})
}

// Wait waits for the goroutines of all groups. After Stop these end when their connections are
// closed.
func (s *Servers) Wait() {
	s.byAddr.Range(func(_, g any) bool {
		g.(*groups).senders.Wait() //nolint:errcheck,forcetypeassert // nothing else is stored
		return true
	})
}
