package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

// node has what a process has: a client, a Locker, and a network that can be cut.
type node struct {
	network
	rdb   *redis.Client
	locks *lockcore.Locker
}

// quiet drops the log lines of go-redis about connections that a cut network refuses.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func newNode(ctx context.Context, addr string, o lockcore.Observer) (*node, error) {
	n := &node{network: network{conns: map[net.Conn]bool{}}}
	n.rdb = redis.NewClient(&redis.Options{Addr: addr, Dialer: n.dial})
	if err := n.rdb.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("redis at %s: %w", addr, err), n.rdb.Close())
	}
	var err error
	if n.locks, err = lockcore.New(n.rdb, lockcore.Options{Prefix: "example-observability", Observer: o}); err != nil {
		return nil, errors.Join(err, n.rdb.Close())
	}
	return n, nil
}

// close closes the Locker before the client.
func (n *node) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return errors.Join(n.locks.Close(ctx), n.rdb.Close())
}

// network is the connection to Redis.
type network struct {
	mu     sync.Mutex
	broken bool
	conns  map[net.Conn]bool
}

var errCut = errors.New("the network is cut")

func (n *network) dial(ctx context.Context, proto, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, proto, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.broken {
		_ = c.Close()
		return nil, errCut
	}
	n.conns[c] = true
	return &conn{Conn: c, n: n}, nil
}

// cut closes all connections and refuses new ones until mend.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.broken = true
	for c := range n.conns {
		_ = c.Close()
		delete(n.conns, c)
	}
}

// mend ends a cut, and returns when n is connected again: go-redis dials a server that it could not
// reach once a second.
func (n *node) mend(ctx context.Context) {
	n.mu.Lock()
	n.broken = false
	n.mu.Unlock()
	for {
		_, err := n.locks.Inspect(ctx, lockcore.KindExclusive, "any")
		if err == nil || rest(ctx, 50*time.Millisecond) != nil {
			return
		}
	}
}

type conn struct {
	net.Conn
	n *network
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if !c.n.conns[c.Conn] { // it was cut
		return nil
	}
	delete(c.n.conns, c.Conn)
	return c.Conn.Close()
}
