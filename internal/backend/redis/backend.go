// Package redis is the backend on Redis: one server, a Sentinel's primary, or a Cluster.
//
// scripts/*.lua are the protocol. The Go code has these parts:
//
//   - conn.go and group.go send the scripts.
//   - cleanup.go retries withdrawals and releases until they are confirmed.
//   - acks.go waits for replicas.
//   - listen.go receives notifications.
package redis

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const (
	defaultPrefix = "holdfast"
)

// Options are the options of New.
type Options struct {
	backend.Options
	Prefix   string // of every key; empty: "holdfast"; the caller has checked it
	NoGroups bool   // send each call alone
	Acks     Acks   // replicas that must acknowledge
}

// Backend stores keys in Redis.
type Backend struct {
	o        Options
	prefix   string
	wire     wire.Sender
	conn     *conn
	cleanups cleanups

	base context.Context //nolint:containedctx // ends with Close; parent of all background work
	stop context.CancelFunc
}

// New returns a Backend on rdb. It makes its own clients if rdb allows that, see lockcore.New.
func New(rdb redis.UniversalClient, o Options) (*Backend, error) {
	c, err := newConn(rdb)
	if err != nil {
		return nil, err
	}
	if err := c.waitForReplicas(o.Acks); err != nil {
		c.close()
		return nil, err
	}
	if !o.NoGroups {
		c.groupCalls(o.Grouped)
	}
	b := &Backend{o: o, prefix: cmp.Or(o.Prefix, defaultPrefix), conn: c}
	b.wire = wire.Sender{Locker: o.Locker, Channels: wire.ChannelPrefix(b.prefix), Single: c.single}
	b.base, b.stop = context.WithCancel(context.Background())
	b.cleanups.b = b
	return b, nil
}

// Key returns a key and the names of its hash and its queue.
func (b *Backend) Key(kind backend.Kind, name string) backend.Key {
	return backend.Key{Kind: kind, Name: name, Stored: wire.StoredNames(b.prefix, kind, name)}
}

// Name returns "redis".
func (b *Backend) Name() string { return "redis" }

// Route returns the addresses of the primaries that store the keys of a cluster. It waits for the
// cluster only if the client has no slot map.
func (b *Backend) Route(ctx context.Context, keys []*backend.Key) []string {
	nodes := make([]string, len(keys))
	cluster, ok := b.conn.renews.(*redis.ClusterClient)
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

// Permanent reports whether a repeat would fail with the same error.
func (b *Backend) Permanent(err error) bool { return permanent(err) }

// Drain waits until the cleanup queue is empty, or until ctx ends.
func (b *Backend) Drain(ctx context.Context) {
	select {
	case <-b.cleanups.drain():
	case <-ctx.Done():
	}
}

// Close ends the backend. Commands in flight on its own connections fail at once. It does not close
// the user's client.
func (b *Backend) Close() {
	b.stop()
	b.cleanups.stop()
	b.conn.close()
	b.cleanups.senders.Wait()
}

// Unconfirmed returns the number of withdrawals and releases that are not confirmed.
func (b *Backend) Unconfirmed() int { return int(b.cleanups.n.Load()) }

// Report reports the withdrawals and releases that were given up.
func (b *Backend) Report() { b.cleanups.report() }
