package main

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"
)

// startMasters starts n servers that know nothing of each other. It returns the first one, which has
// the others, when they are old enough: a server that has just started does not vote for a lease.
func startMasters(ctx context.Context, n int, lease time.Duration) (*server, error) {
	first := &server{stop: func() {}}
	for i := range n {
		s, err := startServer(ctx, "")
		if err != nil {
			first.close()
			return nil, fmt.Errorf("bench: no %d servers: %w", n, err)
		}
		if i == 0 {
			first = s
			continue
		}
		first.others = append(first.others, s)
	}
	for _, s := range first.nodes() {
		if err := s.waitUntilOld(ctx, lease); err != nil {
			first.close()
			return nil, err
		}
	}
	return first, nil
}

// waitUntilOld waits until INFO shows that a lease has passed since the start. Its uptime has whole
// seconds, and holdfast adds 1 % for the rates of the clocks.
func (s *server) waitUntilOld(ctx context.Context, lease time.Duration) error {
	for {
		info, err := s.info(ctx, "server")
		if err != nil {
			return err
		}
		up, err := strconv.Atoi(info["uptime_in_seconds"])
		if err != nil {
			return err
		}
		if time.Duration(up-1)*time.Second >= lease+lease/100 {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// first returns s with the first n servers only.
func (s *server) first(n int) *server {
	some := *s
	some.others = s.others[:n-1]
	return &some
}

// far returns a dialer whose connections add trip to a round trip, half of it in each direction. With
// trip 0 it returns dial.
func far(dial dialFunc, trip time.Duration) dialFunc {
	if trip == 0 {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &farConn{Conn: conn, one: trip / 2, sent: make(chan packet, 1024), closed: make(chan struct{})}
		go c.deliver()
		return c, nil
	}
}

// farConn delivers what is written to it later, and what it reads too.
type farConn struct {
	net.Conn

	one    time.Duration // in one direction
	sent   chan packet
	closed chan struct{}
}

type packet struct {
	data []byte
	due  time.Time
}

func (c *farConn) Write(b []byte) (int, error) {
	select {
	case <-c.closed: // after Close both cases of the next select can be ready
		return 0, net.ErrClosed
	default:
	}
	select {
	case c.sent <- packet{append([]byte(nil), b...), time.Now().Add(c.one)}:
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// deliver ends with the connection.
func (c *farConn) deliver() {
	for {
		select {
		case p := <-c.sent:
			time.Sleep(time.Until(p.due))
			if _, err := c.Conn.Write(p.data); err != nil {
				return
			}
		case <-c.closed:
			return
		}
	}
}

// Read delays each reply. A client waits for the reply to its command, so replies do not queue here.
func (c *farConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		time.Sleep(c.one)
	}
	return n, err
}

// Close is called once, by the client.
func (c *farConn) Close() error {
	close(c.closed)
	return c.Conn.Close()
}
