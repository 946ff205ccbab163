package redis

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// errDialsHeldUp is a temporary error, because go-redis gives up dials that hang.
var errDialsHeldUp = errors.New("too many dials are still running after their callers returned")

// dialer is the type of redis.Options.Dialer.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// subscriber returns a client for one subscription, and a function that closes the client. go-redis
// reconnects a subscription under its mutex and with its own ctx. So a dial that hangs would delay
// Close of the subscription, and with it Close of the Backend. Here dials and connections end with
// ctx. A client of the user is used as it is.
//
// A dial that ends with ctx returns redis.ErrClosed, which makes go-redis end the subscription.
// After any other error go-redis sleeps for 100 ms and dials again.
func (c *conn) subscriber(ctx context.Context) (redis.UniversalClient, func() error) {
	if !c.own {
		return c.renews, func() error { return nil }
	}
	var sub redis.UniversalClient
	if cluster, ok := c.renews.(*redis.ClusterClient); ok {
		o := *cluster.Options()
		o.ClusterStateReloadInterval = time.Second // it is read when the subscription connects, and go-redis does not report a failure to connect
		sub = ownCluster(ctx, &o, c.slots, &dials{heldUp: c.heldUpDials}, redis.ErrClosed)
	} else if single, ok := c.renews.(*redis.Client); ok {
		sub = ownClient(ctx, single.Options(), &dials{heldUp: c.heldUpDials}, redis.ErrClosed)
	}
	return sub, sub.Close
}

// heldUpDials counts, by address, the dials that are still running after their callers have
// returned.
type heldUpDials struct{ left sync.Map } // of *atomic.Int64

func (d *heldUpDials) to(addr string) *atomic.Int64 {
	n, _ := d.left.LoadOrStore(addr, new(atomic.Int64))
	return n.(*atomic.Int64) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// dials counts the dials of one client, and the held up dials of all own clients.
type dials struct {
	made   atomic.Int64
	heldUp *heldUpDials
}

// endWith makes the dials of next, and their connections, end with ctx, even if next ignores its
// own ctx. over is the error of a dial after that. A dial fails at once if maxHeldUp dials to the
// same address are still running after their callers have returned.
//
// endWith adds no timeout, so only next bounds the dial of a subscription. In a synctest bubble a
// timeout would not fire. The reason is that go-redis dials under a mutex, and its health check
// waits for that mutex. A goroutine that waits for a mutex stops the clock of the bubble.
func endWith(ctx context.Context, next dialer, dials *dials, over error) dialer {
	type result struct {
		conn net.Conn
		err  error
	}
	return func(dial context.Context, network, addr string) (net.Conn, error) {
		dials.made.Add(1)
		left := dials.heldUp.to(addr)
		if left.Load() >= maxHeldUp && !backend.Ended(ctx) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errDialsHeldUp}
		}
		dial, cancel := context.WithCancel(dial)
		defer context.AfterFunc(ctx, cancel)()
		made, returned := make(chan result), make(chan struct{})
		go func() { // ends when next returns; closes a connection that arrives after the caller has returned
			defer cancel()
			conn, err := next(dial, network, addr)
			if err == nil {
				conn = bind(ctx, conn)
			}
			select {
			case made <- result{conn, err}:
			case <-returned:
				left.Add(-1)
				if err == nil {
					_ = conn.Close()
				}
			}
		}()
		select {
		case r := <-made:
			if !backend.Ended(ctx) {
				return r.conn, r.err
			}
			return nil, over
		case <-dial.Done(): // the pool of go-redis cancels dial after DialTimeout; TLS and custom dialers may ignore that
		}
		left.Add(1)
		close(returned)
		if backend.Ended(ctx) {
			return nil, over
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(dial)}
	}
}

// bind closes conn when ctx ends. If conn is closed first, it is no longer registered with ctx.
func bind(ctx context.Context, conn net.Conn) net.Conn {
	b := boundConn{conn, context.AfterFunc(ctx, func() { _ = conn.Close() })}
	if socket, ok := conn.(syscall.Conn); ok {
		if raw, err := socket.SyscallConn(); err == nil {
			return boundSocket{b, raw}
		}
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

// boundSocket gives access to the socket, which go-redis checks before it reuses an idle
// connection.
type boundSocket struct {
	boundConn
	raw syscall.RawConn
}

// SyscallConn returns the RawConn of the socket. net.TCPConn allocates a new one at each call.
func (s boundSocket) SyscallConn() (syscall.RawConn, error) { return s.raw, nil }
