package faulty

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// toServer sends requests to Redis. It owns the server's end of the connection. It ends when the
// connection is cut, or when Redis has closed its end. It also ends when the client has closed its
// end and no request is left.
func (c *conn) toServer() {
	for {
		data, ok := c.next()
		if !ok {
			break
		}
		if _, err := c.server.Write(data); err != nil {
			break
		}
	}
	_ = c.server.Close()
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	delete(c.f.conns, c)
}

// next waits for the next request that may continue to Redis. It returns false if there will be
// none.
func (c *conn) next() (data []byte, ok bool) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	for !c.cut && !c.gone {
		for c.closed && c.f.deafServer && len(c.requests) > 0 && !c.requests[0].held() {
			c.requests = c.requests[1:] // a closed connection sends nothing again
		}
		switch {
		case len(c.requests) > 0:
			if p := c.requests[0]; c.passesLocked(p) {
				c.requests = c.requests[1:]
				if p.fault != nil && p.fault.kind == cutRequest {
					c.cutLocked()
					continue
				}
				c.expectLocked(p)
				return p.data, true
			}
		case c.closed && c.mayLeaveLocked():
			return nil, false
		}
		c.changed.Wait()
	}
	return nil, false
}

// passesLocked reports whether p, the first request, may continue now.
func (c *conn) passesLocked(p packet) bool {
	return !c.f.deafServer && !time.Now().Before(p.due) && (!p.held() || p.fault.deliver)
}

// held reports whether a Hold fault hit p. A held request outlives its connection.
func (p packet) held() bool { return p.fault != nil && p.fault.kind == hold }

// expectLocked records that p is about to be sent. It is called before the reply can arrive.
func (c *conn) expectLocked(p packet) {
	switch {
	case resp.Subscribes(p.args):
		c.sub = true
	case len(p.args) > 1 && strings.EqualFold(p.args[0], "HELLO") && p.args[1] == "3":
		c.resp3 = true
		fallthrough
	case c.resp3 || !c.sub:
		c.awaiting = append(c.awaiting, p.fault)
	}
}

// mayLeaveLocked reports whether to close the server's end of a connection that the client has
// closed. Redis executes a request that has arrived although no client waits for its reply.
func (c *conn) mayLeaveLocked() bool {
	if c.leaveBy.IsZero() {
		c.leaveBy = time.Now().Add(farewell)
		c.wakeLocked(farewell)
	}
	return len(c.awaiting) == 0 || !time.Now().Before(c.leaveBy)
}

// fromServer carries replies and messages to the client. It ends when either side closes the
// server's end.
func (c *conn) fromServer() {
	var rest []byte
	buf := make([]byte, 32<<10)
	for {
		n, err := c.server.Read(buf)
		rest = append(rest, buf[:n]...)
		for {
			size, push, ok := resp.Split(rest)
			if !ok {
				break
			}
			c.arrive(bytes.Clone(rest[:size]), push)
			rest = rest[size:]
		}
		if err != nil {
			c.hangUp()
			return
		}
	}
}

// arrive sends one reply, or one message, on its way to the client.
func (c *conn) arrive(data []byte, push bool) {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	var fault *Fault
	if !push && len(c.awaiting) > 0 && (c.resp3 || !c.sub) {
		fault = c.awaiting[0]
		c.awaiting = slices.Delete(c.awaiting, 0, 1)
	}
	if fault != nil {
		close(fault.replied)
		c.mute = c.mute || fault.kind == loseReply
		if fault.kind == cutReply {
			c.cutLocked()
		}
	}
	if !c.mute && !c.closed {
		c.replies = append(c.replies, packet{data: data, due: c.dueLocked()})
	}
	c.changed.Broadcast()
}

// hangUp records that Redis, or toServer, has closed the server's end.
func (c *conn) hangUp() {
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.gone = true
	if !c.mute {
		c.replies = append(c.replies, packet{eof: true, due: c.dueLocked()})
	}
	c.changed.Broadcast()
}

// cutLocked closes both ends; data on its way is lost. It does not wait, because toServer may be
// writing.
func (c *conn) cutLocked() {
	c.cut = true
	_ = c.server.Close()
	c.requests, c.replies, c.unread = nil, nil, nil
	c.changed.Broadcast()
}
