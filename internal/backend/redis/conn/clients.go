package conn

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// PoolSize is the least size of the pool of an own client.
const PoolSize = 16

const maxRenewTime = time.Hour // read timeout of renewals, because a reply is useful while the lease is valid

// ErrClusterSlots is the error of New for a ClusterClient whose slots come from a function of its
// options. redis.NewFailoverClusterClient makes such a client. The program reloads the slots of that
// client when a primary is replaced: go-redis does so when a Sentinel reports it. The slots of a
// copy would be reloaded only once a minute, because a server that is not part of a Cluster does
// not redirect commands. Until then the copy would acquire keys on the old primary.
var ErrClusterSlots = errors.New("lockcore: New: the ClusterClient gets its slots from a function (ClusterOptions.ClusterSlots, also set by redis.NewFailoverClusterClient), and would not follow a failover; " +
	"with Sentinel use redis.NewFailoverClient, in a Cluster whose addresses must be changed use ClusterOptions.Dialer")

var errRing = errors.New("lockcore: New: a redis.Ring shards without a quorum and moves keys when a node is down; use a Client, a failover client or a ClusterClient")

// ErrCutOff is the error of a dial that Close has canceled. Nothing was sent.
var ErrCutOff error = &net.OpError{Op: "dial", Err: errors.New("the Locker was closed")}

// ownClient makes a client whose connections end with ctx, and which sends no command on its own.
// over is the error of a dial after the end of ctx.
func ownClient(ctx context.Context, o *redis.Options, dials *dials, over error) *redis.Client {
	c := *o
	dials.patience = min(dials.patience, c.ReadTimeout*2/5)
	c.Dialer = endWith(ctx, c.Dialer, dials, over)
	c.Limiter = nil // the circuit breaker of the program must not end leases, nor count the short timeouts of this client
	c.ClientSideCacheConfig, c.ClientSideCache = nil, nil
	c.ContextTimeoutEnabled, c.MaxRetries, c.MinRetryBackoff = true, -1, 0
	c.PoolSize, c.MinIdleConns, c.MaxIdleConns, c.MaxActiveConns = max(c.PoolSize, PoolSize), 0, 0, 0
	c.PipelinePoolSize = -1  // one pool, because a single command cannot use the open connections of a second one for pipelines
	c.MaxConcurrentDials = 0 // PoolSize, because nothing bounds how long a call waits for another one's dial
	c.CredentialsProviderContext, c.OnConnect = timedCredentials(c.CredentialsProviderContext), timedConnect(c.OnConnect)
	c.DialerRetries, c.PushNotificationProcessor, c.MaintNotificationsConfig = 1, nil, noNotices()
	c.DialTimeout, c.PoolTimeout = bound(c.DialTimeout, callTimeout), bound(c.PoolTimeout, callTimeout/2)
	return redis.NewClient(&c)
}

func ownCluster(ctx context.Context, o *redis.ClusterOptions, slots *slotMap, dials *dials, over error) *redis.ClusterClient {
	c := *o
	slots.share(&c)
	if c.Dialer == nil {
		c.Dialer = redis.NewDialer(&redis.Options{DialTimeout: c.DialTimeout, TLSConfig: c.TLSConfig})
	}
	dials.patience = min(dials.patience, c.ReadTimeout*2/5)
	c.Dialer = endWith(ctx, c.Dialer, dials, over)
	c.ContextTimeoutEnabled, c.MaxRetries, c.MinRetryBackoff, c.MaxRetryBackoff = true, -1, 0, 0
	c.PoolSize, c.MinIdleConns, c.MaxIdleConns, c.MaxActiveConns = max(c.PoolSize, PoolSize), 0, 0, 0
	c.PipelinePoolSize = -1  // one pool, because a single command cannot use the open connections of a second one for pipelines
	c.MaxConcurrentDials = 0 // PoolSize, because nothing bounds how long a call waits for another one's dial
	c.CredentialsProviderContext, c.OnConnect = timedCredentials(c.CredentialsProviderContext), timedConnect(c.OnConnect)
	c.ReadOnly, c.RouteByLatency, c.RouteRandomly = false, false, false // never read the state of a key from a replica
	// The clients must not share Addrs, because each appends to it under its own mutex.
	c.Addrs = slices.Clone(c.Addrs)
	// A script is routed by its keys. With routing policies, the first command of each client would
	// wait for the reply to COMMAND. go-redis sends COMMAND to any node and does not bound it by
	// ctx.
	c.DisableRoutingPolicies = true
	c.DialerRetries, c.PushNotificationProcessor, c.MaintNotificationsConfig = 1, nil, noNotices()
	c.DialTimeout, c.PoolTimeout = bound(c.DialTimeout, callTimeout), bound(c.PoolTimeout, callTimeout/2)
	return redis.NewClusterClient(&c)
}

// bound returns d, or limit if d is longer or not positive.
func bound(d, limit time.Duration) time.Duration {
	if d <= 0 {
		return limit
	}
	return min(d, limit)
}

// patience is shorter than each timeout of a call, the shortest of which is callTimeout/2. With a
// shorter ReadTimeout the patience of a client is shorter too. It does not depend on the ctx of a
// call, which may leave too little time for any reply.
const patience = callTimeout * 2 / 5

// noNotices returns a new configuration each time, because a client writes to the configuration in
// its Options. The notices are off, because a lease outlives the events that they announce.
func noNotices() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
