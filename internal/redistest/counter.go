package redistest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// Counter counts the commands that are sent on connections. A script counts under its title, its last line that
// looks like `-- acquire.lua: …`; everything else under its own name in lower case. What sets a connection up is not
// counted (HELLO, AUTH, SELECT, CLIENT, READONLY, PING). The zero value is ready.
type Counter struct {
	names resp.Names
	mu    sync.Mutex
	sent  []sent
}

type sent struct{ name, sha string }

// Dial returns a dialer whose connections are counted.
func (c *Counter) Dial(next Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, counter: c}, nil
	}
}

// Reset forgets what was sent so far, but not how the scripts are called. Warm up, Reset, then count: the first use of a
// script on a server is an EVALSHA and then an EVAL.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = nil
}

// Commands returns what was sent, in order.
func (c *Counter) Commands() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := make([]string, 0, len(c.sent))
	for _, s := range c.sent {
		if script := c.names.Of(s.sha); script != "" {
			s.name = script
		}
		names = append(names, s.name)
	}
	return names
}

// Count returns how often a command was sent.
func (c *Counter) Count(name string) int {
	n := 0
	for _, s := range c.Commands() {
		if s == name {
			n++
		}
	}
	return n
}

// String lists what was sent by name: "acquire 1, release 1".
func (c *Counter) String() string {
	count := make(map[string]int)
	for _, s := range c.Commands() {
		count[s]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, count[name]))
	}
	return strings.Join(parts, ", ")
}

func (c *Counter) saw(args []string) {
	if resp.Handshake(args) {
		return
	}
	s := sent{name: strings.ToLower(args[0]), sha: c.names.Script(args)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, s)
}

type countedConn struct {
	net.Conn
	counter *Counter
	mu      sync.Mutex // a connection may be written to from more than one goroutine
	rest    []byte     // of a request that is not complete
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.see(b) // before it is sent, so that who has the reply finds it counted
	return c.Conn.Write(b)
}

func (c *countedConn) see(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest = append(c.rest, b...)
	for {
		n, _, ok := resp.Split(c.rest)
		if !ok {
			return
		}
		c.counter.saw(resp.Args(c.rest[:n]))
		c.rest = c.rest[n:]
	}
}
