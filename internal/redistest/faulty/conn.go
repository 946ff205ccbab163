package faulty

import (
	"bytes"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// farewell is how long a connection that its client has closed waits for Redis to execute its last
// requests.
const farewell = time.Second

// conn is the client's end of a connection through a Network. f.mu guards every field below changed.
type conn struct {
	f       *Network
	server  net.Conn
	changed sync.Cond // on f.mu

	partial  []byte    // the start of a request that is not complete
	requests []packet  // on their way to Redis
	awaiting []*Fault  // for each request that Redis has without a reply: the fault that hit it, or nil
	replies  []packet  // on their way to the client
	unread   []byte    // arrived at the client
	readBy   deadline  // the client's read deadline
	writeBy  deadline  // the client's write deadline
	resp3    bool      // the client has selected RESP3: messages are pushes
	sub      bool      // the client has subscribed
	lost     bool      // no further data of the client arrives
	mute     bool      // no further data of Redis arrives
	closed   bool      // by the client
	cut      bool      // by a fault
	gone     bool      // the server's end is closed
	leaveBy  time.Time // when the server's end of a closed connection is closed
}

// packet is a request, a reply, or the end of the stream.
type packet struct {
	data  []byte
	due   time.Time
	fault *Fault
	args  []string // of a request
	eof   bool
}

// deadline ends Reads or Writes at its time.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) setLocked(c *conn, t time.Time) {
	if d.timer != nil {
		d.timer.Stop()
	}
	d.at, d.timer = time.Time{}, nil
	if !t.IsZero() {
		left := time.Until(t)
		d.at, d.timer = time.Now().Add(left), c.wakeLocked(left) // on the monotonic clock, like the timer
	}
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// wakeLocked wakes every goroutine that waits on c after d.
func (c *conn) wakeLocked(d time.Duration) *time.Timer {
	return time.AfterFunc(d, func() {
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		c.changed.Broadcast()
	})
}

// Read returns data that has arrived. It waits for data until the read deadline.
func (c *conn) Read(b []byte) (int, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.readBy.passed():
			return 0, os.ErrDeadlineExceeded
		case len(c.unread) > 0:
			n := copy(b, c.unread)
			c.unread = c.unread[n:]
			return n, nil
		case c.cut:
			return 0, io.EOF
		case len(b) == 0:
			return 0, nil
		}
		if !c.f.deafClient && len(c.replies) > 0 && !time.Now().Before(c.replies[0].due) {
			if c.replies[0].eof {
				return 0, io.EOF
			}
			c.unread = c.replies[0].data
			c.replies = c.replies[1:]
			continue
		}
		c.changed.Wait()
	}
}

// Write never blocks: the network accepts all data, also on a connection that is cut. Only Read
// reports the cut. (The pool of a client that checks an idle socket before use would notice the
// cut. This is the harder case, in which the check was a moment too early.)
func (c *conn) Write(b []byte) (int, error) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.writeBy.passed():
		return 0, os.ErrDeadlineExceeded
	case c.cut:
		return len(b), nil
	}
	c.partial = append(c.partial, b...)
	for {
		n, _, ok := resp.Split(c.partial)
		if !ok {
			break
		}
		c.sendLocked(bytes.Clone(c.partial[:n]))
		c.partial = c.partial[n:]
	}
	c.changed.Broadcast()
	return len(b), nil
}

// dueLocked returns the time at which data that is sent now arrives. It wakes waiting goroutines
// then.
func (c *conn) dueLocked() time.Time {
	if c.f.latency == nil {
		return time.Time{}
	}
	d := c.f.latency()
	c.wakeLocked(d)
	return time.Now().Add(d)
}

// sendLocked sends one request on its way. A fault may hit it.
func (c *conn) sendLocked(data []byte) {
	p := packet{data: data, args: resp.Args(data), due: c.dueLocked()}
	if len(p.args) > 0 {
		p.fault = c.f.strikeLocked(Request{
			Name:   strings.ToUpper(p.args[0]),
			Args:   p.args[1:],
			Script: c.f.names.Of(c.f.names.Script(p.args)),
		})
	}
	if p.fault != nil && p.fault.kind == loseRequest {
		c.lost = true
	}
	if !c.lost {
		c.requests = append(c.requests, p)
	}
}

// Close closes the client's end. Requests on their way still arrive, unless the network is silent.
func (c *conn) Close() error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	c.closed = true
	c.readBy.setLocked(c, time.Time{})
	c.writeBy.setLocked(c, time.Time{})
	c.replies, c.unread, c.partial = nil, nil, nil
	c.changed.Broadcast()
	return nil
}

func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadlines(t, &c.readBy, &c.writeBy) }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadlines(t, &c.readBy) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.writeBy) }

func (c *conn) setDeadlines(t time.Time, which ...*deadline) error {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if c.closed {
		return net.ErrClosed
	}
	for _, d := range which {
		d.setLocked(c, t)
	}
	c.changed.Broadcast()
	return nil
}

func (c *conn) LocalAddr() net.Addr  { return c.server.LocalAddr() }
func (c *conn) RemoteAddr() net.Addr { return c.server.RemoteAddr() }

func handshake(r Request) bool { return resp.Handshake([]string{r.Name}) }
