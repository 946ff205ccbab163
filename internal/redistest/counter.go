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

// Counter counts the commands that are sent on connections. A script counts under its title, the
// last line of the form `-- acquire.lua: …`. Every other command counts under its own name in lower
// case. The commands that set up a connection do not count (HELLO, AUTH, SELECT, CLIENT, READONLY,
// PING). The zero value is ready to use.
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

// Reset sets the counts to zero and keeps the titles of scripts. The first use of a script on a
// server is an EVALSHA and then an EVAL. So warm up, call Reset, and then count.
func (c *Counter) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = nil
}

// Commands returns the commands that were sent, in order.
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

// String lists the commands by name: "acquire 1, release 1".
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
	rest    []byte     // the start of a request that is not complete
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.see(b) // before it is sent, so that it is counted when the reply arrives
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
