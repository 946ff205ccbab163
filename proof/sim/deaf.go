package sim

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

var errSilent = errors.New("sim: the network is silent")

// dialer dials the server through n's faults. A subscription of go-redis dials, and does its
// handshake, under a lock that its readers need. In a bubble the clock would then stop forever if
// that took time. So a dial fails during a silence, and no handshake is delayed.
func (n *node) dialer(next faulty.Dialer) faulty.Dialer {
	next = n.faults.Dial(next)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if n.silent.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errSilent}
		}
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &deafConn{Conn: c, n: n}, nil
	}
}

// deafConn drops messages, and only those, while its node or all nodes must not receive them. It
// also sends copies of rotations. One goroutine at a time reads it, as go-redis does.
type deafConn struct {
	net.Conn
	n        *node
	greeting atomic.Bool // from the first command to the first that is not part of a handshake
	greeted  atomic.Bool
	rest     []byte // a reply or message that is not complete
	heard    []byte // data for Read
}

func (c *deafConn) Write(b []byte) (int, error) {
	args := resp.Args(b)
	c.n.sendAgain(args)
	if !c.greeted.Load() {
		if resp.Handshake(args) {
			if c.greeting.CompareAndSwap(false, true) {
				c.n.greetings.Add(1)
			}
		} else {
			c.over()
		}
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Close() error {
	c.over()
	return c.Conn.Close()
}

func (c *deafConn) over() {
	c.greeted.Store(true)
	if c.greeting.CompareAndSwap(true, false) {
		c.n.greetings.Add(-1)
	}
}

func (c *deafConn) Read(b []byte) (int, error) {
	for len(c.heard) == 0 {
		buf := make([]byte, 4096)
		n, err := c.Conn.Read(buf)
		c.rest = append(c.rest, buf[:n]...)
		for {
			size, push, ok := resp.Split(c.rest)
			if !ok {
				break
			}
			if !push || !bytes.Contains(c.rest[:size], []byte("\r\nmessage\r\n")) || c.n.hears() {
				c.heard = append(c.heard, c.rest[:size]...)
			}
			c.rest = c.rest[size:]
		}
		if err != nil && len(c.heard) == 0 {
			return 0, err
		}
	}
	n := copy(b, c.heard)
	c.heard = c.heard[n:]
	return n, nil
}

// hears reports whether the next message reaches n.
func (n *node) hears() bool {
	if n.drops.Add(-1) >= 0 {
		return false
	}
	n.drops.Store(0)
	return !n.deaf.Load() && !n.w.hush.Load()
}

// sendAgain sends a copy of a rotation after it, like a proxy or a client that sends twice.
func (n *node) sendAgain(args []string) {
	if n.w.names.Of(n.w.names.Script(args)) != "rotate" || n.copies.Add(-1) < 0 {
		return
	}
	after := 5 * time.Millisecond
	if n.slow.Load() {
		after = 2 * time.Second
	}
	if n.copies.Load()%2 == 0 {
		after += time.Second // the next request has ended, or its grant was handed off
	}
	again := make([]any, len(args))
	for i, a := range args {
		again[i] = a
	}
	n.w.copies.Go(func() {
		time.Sleep(after)
		if !n.killed.Load() {
			_ = n.w.rdb.Do(n.w.root, again...).Err() // no caller waits for its reply
			n.w.struck("copy of rotate")
		}
	})
}
