package lockcore

import (
	"context"
	"errors"
	"fmt"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/quorum"
	"github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// NewQuorum returns a Locker whose keys are held when a majority of independent Redis servers grants
// them, as in Redlock. Up to one of 3, two of 5 or three of 7 servers may be down, slow or lose their
// data: no two calls hold a key at the same time, and calls go on. Without a majority a call gets
// ErrUnavailable, and the leases that are held end at their local timer.
//
// masters are 3, 5 or 7 clients, each of one server that is neither a replica nor part of
// a Cluster. All programs with the same prefix need the same servers and the same
// o.Terms.Lease. The Locker makes its own clients, as with [New].
//
// It has Acquire, AcquireFixed, Extend, Inspect, Revoke, Clear, ForceClear and Pause, and what is
// built on them. Claim, AcquireShare, Throttle, Spend, Restrict, Ticket and Adopt return an error
// that satisfies ErrUnsupported and says what to use instead. Tasks are not parked: they come back
// by their own delay. docs/quorum.md has the whole list.
//
//   - A server that has restarted may have lost leases. So its grants do not count until
//     o.Terms.Lease (30 s by default) after its start. With appendonly yes and appendfsync always in
//     its configuration they count at once. No lease may be longer than o.Terms.Lease.
//   - A server that does not reply within a twentieth of the lease, at most 250 ms, counts as failed.
//     ServerFailed reports it, and a Locker without an Observer logs it.
//   - FLUSHALL, eviction and a REPLICAOF that is undone lose leases without a restart. holdfast
//     cannot see that.
//
// NewQuorum asks each server what it is, for at most 1 s. It returns an error if
//
//   - o is not valid, or o.ReplicaAcks is set.
//   - masters are not 3, 5 or 7, one is nil, or one is a failover client (Sentinel).
//   - a server is a replica, a Sentinel or part of a Cluster, or two are the same server. A
//     server that replies only later then never votes, and ServerFailed says why.
//
// The servers must permit INFO, which each new connection sends. CONFIG GET is optional: without it
// appendfsync always is not seen.
func NewQuorum(masters []*goredis.Client, o Options) (*Locker, error) {
	if err := errtext.Join(o.Validate(), checkMasters(masters), noAcks(o.ReplicaAcks)); err != nil {
		return nil, err
	}
	names := make([]string, len(masters))
	for i, rdb := range masters {
		names[i] = rdb.Options().Addr
	}
	return newLocker(o.Terms, o.Observer, func(common backend.Options) (backend.Backend, error) {
		longest := longestLease(o.Terms)
		servers := quorum.NewServers(names, longest, common.Server)
		backends := make([]quorum.Master, len(masters))
		for i, rdb := range masters {
			b, err := redis.New(rdb, redis.Options{
				Options: common, Prefix: o.Prefix, NoGroups: o.NoGroups, MinAge: longest,
				Connected: func(info backend.ServerInfo) error { return servers.Connected(i, info) },
			})
			if err != nil { // checkMasters has refused the clients for which that can happen
				return nil, err
			}
			backends[i] = b
		}
		b := quorum.New(backends, servers)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := b.Probe(ctx); err != nil {
			b.Close()
			return nil, translate(err)
		}
		return b, nil
	})
}

// longestLease returns the longest lease of a Locker on a majority of servers.
func longestLease(t Terms) time.Duration {
	t.fill(&defaultTerms)
	return t.Lease
}

func checkMasters(masters []*goredis.Client) error {
	var wrong []error
	if n := len(masters); n != 3 && n != 5 && n != 7 {
		wrong = append(wrong, fmt.Errorf("lockcore: NewQuorum: there are %d masters, must be 3, 5 or 7", n))
	}
	for i, rdb := range masters {
		switch {
		case rdb == nil:
			wrong = append(wrong, fmt.Errorf("lockcore: NewQuorum: masters[%d] is nil", i))
		case rdb.Options().Addr == "FailoverClient":
			wrong = append(wrong, fmt.Errorf("lockcore: NewQuorum: masters[%d] is a failover client (Sentinel), must be a client of one server", i))
		}
	}
	return errtext.Join(wrong...)
}

func noAcks(acks ReplicaAcks) error {
	if acks.N != 0 {
		return &unsupportedError{errors.New("lockcore: NewQuorum: ReplicaAcks is set, but servers that vote have no replicas: use New, or leave it out")}
	}
	return nil
}
