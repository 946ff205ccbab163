package conn

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// errDialsHeldUp is a temporary error, because go-redis gives up dials that hang.
var errDialsHeldUp = errors.New("too many dials are still running after their callers returned")

// dialer is the type of redis.Options.Dialer.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Subscriber returns a client for one subscription, and a function that closes the client. go-redis
// reconnects a subscription under its mutex and with its own ctx. So a dial that hangs would delay
// Close of the subscription, and with it Close of the Backend. Here dials and connections end with
// ctx. A client of the user is used as it is.
//
// A dial that ends with ctx returns redis.ErrClosed, which makes go-redis end the subscription.
// After any other error go-redis sleeps for 100 ms and dials again.
func (c *Conn) Subscriber(ctx context.Context) (redis.UniversalClient, func() error) {
	if !c.Own {
		return c.Renews, func() error { return nil }
	}
	var sub redis.UniversalClient
	if cluster, ok := c.Renews.(*redis.ClusterClient); ok {
		o := *cluster.Options()
		o.ClusterStateReloadInterval = time.Second // it is read when the subscription connects, and go-redis does not report a failure to connect
		sub = ownCluster(ctx, &o, c.slots, &dials{to: c.endpoints}, redis.ErrClosed)
	} else if single, ok := c.Renews.(*redis.Client); ok {
		sub = ownClient(ctx, single.Options(), &dials{to: c.endpoints}, redis.ErrClosed)
	}
	return sub, sub.Close
}

// endpoints is what the own clients of a Locker know of each address.
type endpoints struct {
	start  time.Time
	byAddr sync.Map // *endpoint by address
}

type endpoint struct {
	heldUp atomic.Int64 // dials that are still running after their callers have returned
	silent atomic.Int64 // start of the latest read that got no reply in time; connections without a reply since then may be dead
	lostReplies
}

func newEndpoints() *endpoints { return &endpoints{start: time.Now()} }

func (e *endpoints) at(addr string) *endpoint {
	p, ok := e.byAddr.Load(addr)
	if !ok {
		p, _ = e.byAddr.LoadOrStore(addr, newEndpoint(e))
	}
	return p.(*endpoint) //nolint:errcheck,forcetypeassert // nothing else is stored
}

// now returns the time since start, which is positive.
func (e *endpoints) now() int64 { return int64(time.Since(e.start)) + 1 }

// dials counts the dials of one client.
type dials struct {
	made     atomic.Int64
	to       *endpoints
	patience time.Duration // how long a read must have waited to make other connections suspect, see socket; 0: no suspects
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
		to := dials.to.at(addr)
		if to.heldUp.Load() >= maxHeldUp && !backend.Ended(ctx) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errDialsHeldUp}
		}
		dial, cancel := context.WithCancel(dial)
		defer context.AfterFunc(ctx, cancel)()
		made, returned := make(chan result), make(chan struct{})
		ask := func() bool {
			return ask(ctx, func(dial context.Context) (net.Conn, error) { return next(dial, network, addr) })
		}
		go func() { // ends when next returns; closes a connection that arrives after the caller has returned
			defer cancel()
			conn, err := next(dial, network, addr)
			if err == nil {
				conn = bind(ctx, network, conn, dials, to, ask)
			}
			select {
			case made <- result{conn, err}:
			case <-returned:
				to.heldUp.Add(-1)
				if err == nil {
					_ = conn.Close()
				}
			}
		}()
		select {
		case r := <-made:
			switch {
			case backend.Ended(ctx):
				return nil, over
			case r.err != nil: // of the TLS handshake, for example
				return nil, dialError(network, nil, r.err)
			}
			return r.conn, nil
		case <-dial.Done(): // the pool of go-redis cancels dial after DialTimeout; TLS and custom dialers may ignore that
		}
		to.heldUp.Add(1)
		close(returned)
		if backend.Ended(ctx) {
			return nil, over
		}
		return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(dial)}
	}
}
