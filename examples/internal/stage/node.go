package stage

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Node is what each process of a deployment has: a Locker, and a cable to Redis, or to each server of
// a majority.
type Node struct {
	Cable
	Masters []*Cable
	Locks   *lockcore.Locker
}

// quorumLease is the lease on a majority of servers, for which a server that has just started does not
// vote.
const quorumLease = 5 * time.Second

// Node returns a node that is closed at the end of the program. The prefix of its keys is the name
// of the Stage, unless o has another one. Only one goroutine may call it.
func (s *Stage) Node(o lockcore.Options) (n *Node, err error) {
	n = &Node{}
	if o.Prefix == "" {
		o.Prefix = s.Name
	}
	switch {
	case s.Redis == nil:
		n.Locks, err = lockcore.NewMemory(lockcore.MemoryOptions{Terms: o.Terms, Observer: o.Observer})
	case s.Quorum != nil:
		var masters []*redis.Client
		for _, addr := range s.Quorum {
			cable := new(Cable)
			rdb := redis.NewClient(&redis.Options{Addr: addr, Dialer: cable.dial})
			s.closers = append(s.closers, rdb.Close)
			n.Masters, masters = append(n.Masters, cable), append(masters, rdb)
		}
		o.Terms.Lease = quorumLease
		n.Locks, err = lockcore.NewQuorum(masters, o)
	default:
		to := s.options()
		n.open, to.Dialer = to.Dialer, n.dial
		rdb := redis.NewClient(to)
		s.closers = append(s.closers, rdb.Close)
		n.Locks, err = lockcore.New(rdb, o)
	}
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return n.Locks.Close(ctx)
	})
	return n, nil
}

// join makes the servers of a majority from addrs, the first of which is s.Redis, and waits until they
// vote. A server may be down.
func (s *Stage) join(ctx context.Context, addrs []string) error {
	for _, addr := range addrs[1:] {
		if err := checkAddr(addr); err != nil {
			return err
		}
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		s.closers = append(s.closers, rdb.Close, func() error { _ = s.removeKeys(rdb); return nil })
	}
	s.Quorum = addrs
	n, err := s.Node(lockcore.Options{Observer: event.Discard})
	if err != nil {
		return err
	}
	le, err := n.Locks.Acquire(ctx, "votes", lockcore.Terms{Wait: lockcore.NoWait})
	if errors.Is(err, lockcore.ErrUnavailable) {
		s.Say("wait for %v, the lease: a server that has just started may have lost leases, so it does not vote", quorumLease)
		le, err = n.Locks.Acquire(ctx, "votes", lockcore.Terms{Wait: 2 * quorumLease})
	}
	if err != nil {
		return err
	}
	return le.Release(ctx)
}

// Cable is the connection of a node to Redis.
type Cable struct {
	open func(ctx context.Context, network, addr string) (net.Conn, error) // nil: a socket

	mu    sync.Mutex // guards the fields below; Cut closes each connection that dial has added
	isCut bool
	conns []net.Conn
}

func (c *Cable) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	open := c.open
	if open == nil {
		open = new(net.Dialer).DialContext
	}
	opened, err := open(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isCut {
		_ = opened.Close()
		return nil, errors.New("the cable is cut")
	}
	c.conns = append(c.conns, opened)
	return conn{opened}, nil
}

// Cut closes all connections. Until Mend, new ones fail.
func (c *Cable) Cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, opened := range c.conns {
		_ = opened.Close()
	}
	c.isCut, c.conns = true, nil
}

// Mend ends a cut. go-redis dials again within a second.
func (c *Cable) Mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isCut = false
}

// conn may be closed again after Cut.
type conn struct{ net.Conn }

func (c conn) Close() error {
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
