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

// dialer dials the server through the faults of l. A subscription of go-redis dials, and does its
// handshake, under a lock that its readers need. In a bubble the clock would then stop forever if
// that took time. So a dial fails during a silence, and no handshake is delayed.
func (l *link) dialer(next faulty.Dialer) faulty.Dialer {
	next = l.faults.Dial(next)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.silent.Load() || l.server.down.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errSilent}
		}
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &deafConn{Conn: c, l: l}, nil
	}
}

// deafConn drops messages, and only those, while its node or all nodes must not receive them. It
// also sends copies of rotations. One goroutine at a time reads it, as go-redis does.
type deafConn struct {
	net.Conn
	l        *link
	greeting atomic.Bool // from the first command to the first that is not part of a handshake
	greeted  atomic.Bool
	rest     []byte // a reply or message that is not complete
	heard    []byte // data for Read
}

func (c *deafConn) Write(b []byte) (int, error) {
	args := resp.Args(b)
	c.l.sendAgain(args)
	if !c.greeted.Load() {
		if resp.Handshake(args) {
			if c.greeting.CompareAndSwap(false, true) {
				c.l.greetings.Add(1)
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
		c.l.greetings.Add(-1)
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
			if !push || !bytes.Contains(c.rest[:size], []byte("\r\nmessage\r\n")) || c.l.hears() {
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

// hears reports whether the next message reaches the process.
func (l *link) hears() bool {
	if l.drops.Add(-1) >= 0 {
		return false
	}
	l.drops.Store(0)
	return !l.deaf.Load() && !l.w.hush.Load()
}

// sendAgain sends a copy of a rotation after it, like a proxy or a client that sends twice.
func (l *link) sendAgain(args []string) {
	script := l.w.names.Of(l.w.names.Script(args))
	if len(l.w.servers) > 1 && script == "renew" && len(args) > 5 && args[5] == "0" { // it sets only the token
		l.w.count(func(s *Stats) { s.Raises++ })
	}
	if script != "rotate" || l.copies.Add(-1) < 0 {
		return
	}
	after := 5 * time.Millisecond
	if l.slow.Load() {
		after = 2 * time.Second
	}
	if l.copies.Load()%2 == 0 {
		after += time.Second // the next request has ended, or its grant was handed off
	}
	again := make([]any, len(args))
	for i, a := range args {
		again[i] = a
	}
	l.w.copies.Go(func() {
		time.Sleep(after)
		if !l.killed.Load() {
			_ = l.server.rdb.Do(l.w.root, again...).Err() // no caller waits for its reply
			l.w.struck("copy of rotate")
		}
	})
}
