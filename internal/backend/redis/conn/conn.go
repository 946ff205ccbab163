// Package conn has the connections of the backend on Redis: its own clients, which obey deadlines and
// detect dead connections, the slots of a cluster, and what an error says about a command.
package conn

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	callTimeout = backend.CallTimeout
	maxHeldUp   = 256 // maximum number of commands on a client that ignores ctx, and of dials to an address, that may outlive their callers
)

// Conn contains the connections to Redis. If it can, it makes its own clients, so that releases and
// renewals do not queue behind commands of the user or of waiters.
type Conn struct {
	Calls  redis.UniversalClient // acquire, inspect
	Ends   redis.UniversalClient // release, rotate, complete, leave, Extend, Revoke, Clear, and all groups; its commands never queue behind acquires that are sent alone
	Renews redis.UniversalClient // renewals, which may take longer than a call; the client of the subscription has the same options

	Own        bool               // New made all clients: they obey deadlines, and only a ClusterClient may send a command twice
	Single     bool               // one server: PUBLISH counts all receivers, and a script may take many keys
	cut        context.CancelFunc // ends own connections
	slots      *slotMap           // of a cluster, shared by own clients
	renewDials *dials             // of Renews, if it is an own client
	endpoints  *endpoints         // of own clients
	heldUp     atomic.Int64
	borrowed   atomic.Int64 // sends that use a client of other commands, see Others
}

// New returns the connections for the client of the user. greet is called with each new connection
// to a single server, before its first command; nil: nothing is.
func New(rdb redis.UniversalClient, greet func(context.Context, *redis.Conn) error) (*Conn, error) {
	own := func(one func(context.Context, time.Duration, *dials) redis.UniversalClient, single bool) *Conn {
		ctx, cut := context.WithCancel(context.Background())
		to := newEndpoints()
		renewals := &dials{to: to}
		return &Conn{
			renewDials: renewals, endpoints: to,
			Calls: one(ctx, callTimeout, &dials{to: to, patience: patience}), Ends: one(ctx, callTimeout, &dials{to: to, patience: patience}),
			Renews: one(ctx, maxRenewTime, renewals), Own: true, Single: single, cut: cut,
		}
	}
	switch c := rdb.(type) {
	case nil:
		return nil, errors.New("lockcore: New: client is nil")
	case *redis.Ring:
		return nil, errRing
	case *redis.Client:
		if c == nil {
			return nil, errors.New("lockcore: New: client is a nil *redis.Client")
		}
		if c.Options().Addr == "FailoverClient" { // a copy would not work: its dialer follows the primary only together with its own pool
			return &Conn{Calls: c, Ends: c, Renews: c, Single: true}, nil
		}
		return own(func(ctx context.Context, limit time.Duration, d *dials) redis.UniversalClient {
			o := *c.Options()
			o.ReadTimeout, o.WriteTimeout = bound(o.ReadTimeout, limit), bound(o.WriteTimeout, limit)
			o.OnConnect = both(o.OnConnect, greet)
			return ownClient(ctx, &o, d, ErrCutOff)
		}, true), nil
	case *redis.ClusterClient:
		if c == nil {
			return nil, errors.New("lockcore: New: client is a nil *redis.ClusterClient")
		}
		if c.Options().ClusterSlots != nil {
			return nil, ErrClusterSlots
		}
		slots := &slotMap{newClient: c.Options().NewClient}
		made := own(func(ctx context.Context, limit time.Duration, d *dials) redis.UniversalClient {
			o := *c.Options()
			o.ReadTimeout, o.WriteTimeout = bound(o.ReadTimeout, limit), bound(o.WriteTimeout, limit)
			return ownCluster(ctx, &o, slots, d, ErrCutOff)
		}, false)
		made.slots = slots
		return made, nil
	case interface{ Options() *redis.RingOptions }: // a wrapper that embeds a Ring
		return nil, errRing
	case interface{ Options() *redis.ClusterOptions }: // a wrapper that embeds a ClusterClient
		if c.Options().ClusterSlots != nil {
			return nil, ErrClusterSlots
		}
	}
	// A wrapper may ignore ctx, send a command twice, or be a cluster.
	return &Conn{Calls: rdb, Ends: rdb, Renews: rdb}, nil
}

// LikeEnds returns another client with the options of Ends. If Conn made no clients, it returns Ends.
// It returns nil for a wrapper.
func (c *Conn) LikeEnds() redis.UniversalClient {
	switch ends := c.Ends.(type) {
	case *redis.Client:
		if c.Own { // Background, because the dialer in these options already ends with c
			return ownClient(context.Background(), ends.Options(), &dials{to: c.endpoints, patience: patience}, ErrCutOff)
		}
		return ends
	case *redis.ClusterClient:
		return ownCluster(context.Background(), ends.Options(), c.slots, &dials{to: c.endpoints, patience: patience}, ErrCutOff)
	}
	return nil
}

// RenewDials returns the number of dials of Renews, or 0 if it is not an own client.
func (c *Conn) RenewDials() int64 {
	if c.renewDials == nil {
		return 0
	}
	return c.renewDials.made.Load()
}

// Close closes Conn's own clients. First it cuts their connections, so that no command in flight
// delays that.
func (c *Conn) Close() {
	if c.Own {
		c.cut()
		_ = c.Calls.Close() // it returns an error because the connections are closed already
		_ = c.Ends.Close()
		_ = c.Renews.Close()
	}
}

// Route returns the addresses of the primaries that store the keys of a cluster. It waits for the
// cluster only if the client has no slot map.
func (c *Conn) Route(ctx context.Context, keys []*backend.Key) []string {
	nodes := make([]string, len(keys))
	cluster, ok := c.Renews.(*redis.ClusterClient)
	if !ok {
		return nodes
	}
	for i, key := range keys {
		if ctx.Err() != nil {
			break
		}
		if n, err := cluster.MasterForKey(ctx, key.Stored[0]); err == nil {
			nodes[i] = n.Options().Addr
		}
	}
	return nodes
}
