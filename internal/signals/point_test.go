package signals_test

import (
	"context"
	"net"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// point is the point at which a worker stops or dies. A point at a command is the name of a script
// and "sent" or "answered". "sent" is before Redis has the command. "answered" is when Redis has
// run it and the worker has not read the reply. The other points are steps of the handler.
type point string

// at reports whether p is at the script, and when.
func (p point) at(script string) (sent, answered bool) {
	name, when, _ := strings.Cut(string(p), " ")
	return name == script && when == "sent", name == script && when == "answered"
}

// tripwire is the worker's network: it acts when a command about the key passes the point.
type tripwire struct {
	point point
	nth   int // of these commands
	key   string
	act   func()

	names resp.Names
	mu    sync.Mutex
	seen  int
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func (w *tripwire) dial(next dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &wired{Conn: c, w: w}, nil
	}
}

// look reports whether to act now, or with the reply. A script whose text has not passed yet has no
// name. Then look replaces its digest in the request by an unknown one, so that the client sends
// the text.
func (w *tripwire) look(request []byte) (sent, answered bool) {
	args := resp.Args(request)
	sha := w.names.Script(args)
	if sha == "" {
		return false, false
	}
	name := w.names.Of(sha)
	if name == "" {
		copy(request[strings.Index(strings.ToLower(string(request)), sha):], strings.Repeat("0", len(sha)))
		return false, false
	}
	sent, answered = w.point.at(name)
	if !sent && !answered || !strings.Contains(strings.Join(args[2:], "\n"), "{"+w.key+"}") {
		return false, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen++
	return sent && w.seen == w.nth, answered && w.seen == w.nth
}

type wired struct {
	net.Conn
	w    *tripwire
	mu   sync.Mutex
	rest []byte // of a request that is not complete
	trip bool   // with the next answer
}

func (c *wired) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, b...)
	for {
		n, _, ok := resp.Split(c.rest)
		if !ok {
			return len(b), nil
		}
		sent, answered := c.w.look(c.rest[:n])
		if sent {
			c.w.act()
		}
		c.trip = c.trip || answered
		if _, err := c.Conn.Write(c.rest[:n]); err != nil {
			return 0, err
		}
		c.rest = c.rest[n:]
	}
}

func (c *wired) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	trip := c.trip && n > 0
	c.trip = c.trip && !trip
	c.mu.Unlock()
	if trip {
		c.w.act()
	}
	return n, err
}
