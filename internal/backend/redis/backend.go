// Package redis is the backend on Redis: one server, a Sentinel's primary, or a Cluster.
//
// It has these parts, each of which imports only parts above it:
//
//   - scripts are the protocol, in Lua.
//   - wire makes commands from requests, and decodes replies.
//   - conn has the connections.
//   - batch sends calls in groups.
//   - This package sends the requests of package backend, waits for replicas (acks.go), receives
//     notifications (listen.go), and retries withdrawals and releases until they are confirmed, by
//     the queue of package backend/cleanup (cleanup.go).
package redis

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/backend/cleanup"
	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
)

const defaultPrefix = "holdfast"

// ErrClusterSlots is the error of New for a ClusterClient whose slots come from a function.
var ErrClusterSlots = conn.ErrClusterSlots

// Options are the options of New.
type Options struct {
	backend.Options
	Prefix   string // of every key; empty: "holdfast"; the caller has checked it
	NoGroups bool   // send each call alone
	Acks     Acks   // replicas that must acknowledge
	// Connected is called with each new connection of New's own clients, before its first command. If
	// it returns an error, the connection is not used, and its command fails with that error. nil:
	// no server is asked what it is, and it is not one of several.
	Connected func(backend.ServerInfo) error
	MinAge    time.Duration // for Connected: ServerInfo.Durable is only set for a younger server
}

// Backend stores keys in Redis.
type Backend struct {
	o        Options
	prefix   string
	wire     wire.Sender
	send     *sender
	cleanups *cleanup.Queue

	base context.Context //nolint:containedctx // ends with Close; parent of all background work
	stop context.CancelFunc
}

// New returns a Backend on rdb. It makes its own clients if rdb allows that, see lockcore.New.
func New(rdb redis.UniversalClient, o Options) (*Backend, error) {
	c, err := newSender(rdb, &o)
	if err != nil {
		return nil, err
	}
	b := &Backend{o: o, prefix: cmp.Or(o.Prefix, defaultPrefix), send: c}
	b.wire = wire.Sender{Locker: o.Locker, Channels: wire.ChannelPrefix(b.prefix), Single: c.Single}
	b.base, b.stop = context.WithCancel(context.Background())
	b.cleanups = cleanup.New(b.base, &cleaner{c.Conn, &b.wire}, o.Options)
	return b, nil
}

// Key returns a key and the names of its hash and its queue.
func (b *Backend) Key(kind backend.Kind, name string) backend.Key {
	return backend.Key{Kind: kind, Name: name, Stored: wire.StoredNames(b.prefix, kind, name)}
}

// Name returns "redis".
func (b *Backend) Name() string { return "redis" }

// Address returns where the client connects to, or "" if the client does not show it.
func (b *Backend) Address() string {
	switch c := b.send.Renews.(type) {
	case *redis.ClusterClient:
		return strings.Join(c.Options().Addrs, ",")
	case *redis.Client:
		if b.send.Own { // a failover client does not show its server
			return c.Options().Addr
		}
	}
	return ""
}

// Route returns the addresses of the primaries that store the keys of a cluster.
func (b *Backend) Route(ctx context.Context, keys []*backend.Key) []string {
	return b.send.Route(ctx, keys)
}

// Permanent reports whether a repeat would fail with the same error.
func (b *Backend) Permanent(err error) bool { return conn.Permanent(err) }

// Drain waits until the cleanup queue is empty, or until ctx ends.
func (b *Backend) Drain(ctx context.Context) {
	select {
	case <-b.cleanups.Drain():
	case <-ctx.Done():
	}
}

// Close ends the backend. Commands in flight on its own connections fail at once. It does not close
// the user's client.
func (b *Backend) Close() {
	b.stop()
	b.cleanups.Stop()
	b.send.close()
	b.cleanups.Wait()
}

// Unconfirmed returns the number of withdrawals and releases that are not confirmed.
func (b *Backend) Unconfirmed() int { return b.cleanups.Len() }

// Report reports the withdrawals and releases that were given up.
func (b *Backend) Report() { b.cleanups.Report() }

// mostOfMany is the maximum number of unconfirmed withdrawals and releases of one of several servers.
// The others go on while it is away. From MaxCleanups on it gets no new requests, so the further ones
// are of requests that it has never got, or of leases that end by themselves.
const mostOfMany = 4 * cleanup.MaxCleanups

func (b *Backend) full() bool { return b.o.Connected != nil && b.cleanups.Len() >= mostOfMany }

// Withdraw adds a withdrawal to the cleanup queue.
func (b *Backend) Withdraw(r backend.WithdrawRequest) {
	if !b.full() {
		b.cleanups.Withdraw(r)
	}
}

// ReleaseLater adds a release to the cleanup queue.
func (b *Backend) ReleaseLater(r backend.ReleaseRequest, until time.Time) {
	if !b.full() {
		b.cleanups.ReleaseLater(r, until)
	}
}

// Hurry makes an entry of the cleanup queue the next one to be sent.
func (b *Backend) Hurry(id string) { b.cleanups.Hurry(id) }
