// Package pipe connects clients to a server in memory. Their connections have a send buffer, like that
// of a socket.
package pipe

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
)

// Buffered returns conn with an unbounded send buffer: Write never blocks. Without it a pipeline
// that is longer than the reader's buffer deadlocks on a net.Pipe. The server waits until its first
// reply is read, and the client until its last command is read.
func Buffered(conn net.Conn) net.Conn {
	c := &buffered{Conn: conn}
	c.changed.L = &c.mu
	go c.pump() // ends with conn
	return c
}

// inMemory is the part of a miniredis that a Server uses.
type inMemory interface {
	Dial() (net.Conn, error)
	Server() *server.Server // nil before the first Dial
	Close()
	SetTime(now time.Time)
}

// Identity is what INFO says of a Server: by default a primary that has run for a day.
type Identity struct {
	RunID   string
	Started time.Time
	Role    string
	Mode    string
	Ahead   time.Duration // how far its clock is ahead when a script begins; zero does not change it
}

// Server is a server in memory whose Dial and Close may run at the same time. go-redis dials in
// goroutines that may outlive their client. A miniredis does not allow that. Its Dial adds to the
// WaitGroup for which its Close waits. Its Dial after Close starts the server again.
type Server struct {
	server   inMemory
	mu       sync.Mutex
	dialed   bool
	closed   bool
	identity Identity
}

// NewServer returns a Server that runs until Close.
func NewServer(server inMemory) *Server {
	return &Server{server: server, identity: Identity{
		RunID: rand.Text(), Started: time.Now().Add(-24 * time.Hour), Role: "master", Mode: "standalone",
	}}
}

// Identify changes what INFO says.
func (s *Server) Identify(change func(*Identity)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.identity)
}

// info sets the clock, and answers INFO with the sections that a miniredis does not have.
func (s *Server) info(p *server.Peer, command string, args ...string) bool {
	script := strings.HasPrefix(command, "EVAL")
	if !script && (command != "INFO" || len(args) > 1) { // a command inside a script has locks that Dial and SetTime need
		return false
	}
	s.mu.Lock()
	id := s.identity
	s.mu.Unlock()
	if script {
		if id.Ahead != 0 {
			s.server.SetTime(time.Now().Add(id.Ahead))
		}
		return false
	}
	about := fmt.Sprintf("run_id:%s\r\nuptime_in_seconds:%d\r\nredis_mode:%s\r\n", id.RunID, int(time.Since(id.Started).Seconds()), id.Mode)
	role := "role:" + id.Role + "\r\n"
	switch {
	case len(args) == 0:
		p.WriteBulk(about + role)
	case args[0] == "server":
		p.WriteBulk(about)
	case args[0] == "replication":
		p.WriteBulk(role)
	default:
		return false
	}
	return true
}

// Dial returns a connection with a send buffer, or net.ErrClosed after Close.
func (s *Server) Dial() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	conn, err := s.server.Dial()
	if err != nil {
		return nil, err
	}
	if !s.dialed {
		s.dialed = true
		s.server.Server().SetPreHook(s.info)
	}
	return Buffered(conn), nil
}

// Options returns fresh options for a client of s.
func (s *Server) Options() *redis.Options {
	return &redis.Options{
		Addr:            "127.0.0.1:1", // never dialed; a host name would be looked up, outside of a bubble
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return s.Dial() },
		DisableIdentity: true,
		PoolSize:        1000, // a wait for a connection would use a timer that the next bubble may get too
	}
}

// Close ends the server and its connections.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.server.Close()
}

type buffered struct {
	net.Conn

	mu      sync.Mutex
	changed sync.Cond
	unsent  []byte
	err     error // of the connection, once it has ended
}

func (c *buffered) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.unsent = append(c.unsent, b...)
	c.changed.Signal()
	return len(b), nil
}

func (c *buffered) Close() error {
	c.end(net.ErrClosed)
	return c.Conn.Close()
}

// SetDeadline sets the deadline of Read; Write does not wait.
func (c *buffered) SetDeadline(t time.Time) error { return c.Conn.SetReadDeadline(t) }

// SetWriteDeadline does nothing, because Write does not wait.
func (c *buffered) SetWriteDeadline(time.Time) error { return nil }

func (c *buffered) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.changed.Signal()
}

func (c *buffered) pump() {
	for {
		c.mu.Lock()
		for len(c.unsent) == 0 && c.err == nil {
			c.changed.Wait()
		}
		data, ended := c.unsent, c.err != nil
		c.unsent = nil
		c.mu.Unlock()
		if ended {
			return
		}
		if _, err := c.Conn.Write(data); err != nil {
			c.end(err)
			return
		}
	}
}
