package lockcore

import (
	"context"
	"net"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialer is the type of redis.Options.Dialer.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// subscriber returns a client for one subscription, and what closes it. go-redis reconnects a subscription under its
// mutex and on a context of its own, so that a dial that hangs would hold up its Close, and with it ours. Here dials and
// connections end with ctx; a client that is not our own is used as it is.
//
// A dial that ends with ctx returns redis.ErrClosed, which makes go-redis end the subscription. After any other error
// go-redis sleeps for 100 ms and dials again.
func (c *conn) subscriber(ctx context.Context) (redis.UniversalClient, func() error) {
	if !c.own {
		return c.renews, func() error { return nil }
	}
	var sub redis.UniversalClient
	if cluster, ok := c.renews.(*redis.ClusterClient); ok {
		o := *cluster.Options()
		o.ClusterStateReloadInterval = time.Second // read when it connects: go-redis does not tell us that it cannot
		sub = ownCluster(ctx, &o, c.slots, redis.ErrClosed)
	} else if single, ok := c.renews.(*redis.Client); ok {
		sub = ownClient(ctx, single.Options(), redis.ErrClosed)
	}
	return sub, sub.Close
}

// endWith makes the dials of next, and their connections, end with ctx, also if next ignores its own ctx. over is the
// error of a dial after that.
func endWith(ctx context.Context, next dialer, over error) dialer {
	type result struct {
		conn net.Conn
		err  error
	}
	return func(dial context.Context, network, addr string) (net.Conn, error) {
		dial, cancel := context.WithCancel(dial)
		defer context.AfterFunc(ctx, cancel)()
		made, gone := make(chan result), make(chan struct{})
		defer close(gone)
		go func() { // ends with next; a connection that comes too late is closed
			defer cancel()
			conn, err := next(dial, network, addr)
			if err == nil {
				conn = bind(ctx, conn)
			}
			select {
			case made <- result{conn, err}:
			case <-gone:
				if err == nil {
					_ = conn.Close()
				}
			}
		}()
		select {
		case r := <-made:
			if !ended(ctx) {
				return r.conn, r.err
			}
		case <-dial.Done(): // go-redis bounds it by DialTimeout, which a dialer with TLS or of the user may ignore
			if !ended(ctx) {
				return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(dial)}
			}
		}
		return nil, over
	}
}

// bind closes conn when ctx ends. A connection that is closed earlier leaves nothing behind in ctx.
func bind(ctx context.Context, conn net.Conn) net.Conn {
	b := boundConn{conn, context.AfterFunc(ctx, func() { _ = conn.Close() })}
	if socket, ok := conn.(syscall.Conn); ok {
		return boundSocket{b, socket}
	}
	return b
}

type boundConn struct {
	net.Conn
	unbind func() bool
}

func (c boundConn) Close() error {
	c.unbind()
	return c.Conn.Close()
}

// boundSocket shows go-redis the socket, at which it looks before it uses an idle connection again.
type boundSocket struct {
	boundConn
	syscall.Conn
}
