package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

var dialer = net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute} // as go-redis dials by default

const dialTimeout = 5 * time.Second // the default of go-redis and of rueidis

// link represents the network of one client. It can become silent, like a network that drops
// packets, and it can lose the reply to one command. The zero link has no fault.
type link struct {
	mu     sync.Mutex
	silent bool
	prey   []byte // the reply to the next command that contains it is lost; nil: none
	cut    bool   // then the connection is closed, otherwise it becomes silent
	sprung func() // called when the reply has been lost
}

// silence begins to lose all data, in both directions and on new connections too. No connection is
// closed.
func (l *link) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

// trap makes the link lose the reply to the next command that contains key, after Redis has
// executed that command. The connection of the command is then cut, or stays open and silent. Other
// and new connections work.
func (l *link) trap(key string, cut bool, sprung func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.prey, l.cut, l.sprung = []byte(key), cut, sprung
}

func (l *link) isSilent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.silent
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if l.isSilent() {
		select {
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: network, Err: context.Cause(ctx)}
		case <-time.After(dialTimeout):
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		}
	}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("bench: not a TCP connection: "+addr), conn.Close())
	}
	return &linkConn{TCPConn: tcp, link: l}, nil
}

// linkConn embeds the TCPConn for the same reason as wireConn. Deadlines and Close work as for the
// TCPConn, even while the link is silent.
type linkConn struct {
	*net.TCPConn
	link *link

	// These are guarded by link.mu.
	caught bool // the next data to read is the reply that is lost
	dead   bool // silent forever
}

// Write also reports success for data that is lost, like a socket whose buffer has space.
func (c *linkConn) Write(b []byte) (int, error) {
	l := c.link
	l.mu.Lock()
	lost := l.silent || c.dead
	if !lost && l.prey != nil && bytes.Contains(b, l.prey) {
		l.prey, c.caught = nil, true
	}
	l.mu.Unlock()
	if lost {
		return len(b), nil
	}
	return c.TCPConn.Write(b)
}

func (c *linkConn) Read(b []byte) (int, error) {
	for {
		n, err := c.TCPConn.Read(b)
		if err != nil {
			return n, err
		}
		lost, cut := c.judge()
		switch {
		case cut:
			_ = c.TCPConn.Close()
			return 0, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		case !lost:
			return n, nil
		}
	}
}

// judge reports whether the data that was just read is lost, and whether the connection is cut.
func (c *linkConn) judge() (lost, cut bool) {
	l := c.link
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.caught {
		c.caught, c.dead = false, true
		l.sprung()
		return true, l.cut
	}
	return l.silent || c.dead, false
}
