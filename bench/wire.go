package main

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// wire counts what the clients of this process send. The server cannot tell: on Redis 7.0 both INFO commandstats and
// total_commands_processed also count what scripts call inside (5 EVALSHA of a script with 3 commands: 20).
type wire struct {
	commands atomic.Int64
	trips    atomic.Int64 // writes: a pipeline that is flushed once is one round trip
}

var dialer = net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute} // as go-redis dials by default

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("bench: not a TCP connection: "+addr), conn.Close())
	}
	return &wireConn{TCPConn: tcp, wire: w}, nil
}

// wireConn embeds the TCPConn rather than a net.Conn: go-redis then still finds SyscallConn and checks an idle connection
// as it does in production, at the same cost.
type wireConn struct {
	*net.TCPConn
	wire   *wire
	frames frames
}

func (c *wireConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.wire.trips.Add(1)
	c.wire.commands.Add(c.frames.count(b[:n]))
	return n, err
}

// frames counts commands in a stream of RESP, however it is cut: "*2\r\n$3\r\nGET\r\n$1\r\na\r\n" is one. What is inside
// an argument is skipped by its length.
type frames struct {
	kind   byte // of the line being read: * or $
	number int  // in that line
	skip   int  // bytes of an argument still to come
}

func (f *frames) count(b []byte) (n int64) {
	for len(b) > 0 {
		if f.skip > 0 {
			k := min(f.skip, len(b))
			f.skip -= k
			b = b[k:]
			continue
		}
		switch c := b[0]; {
		case c == '*', c == '$':
			f.kind, f.number = c, 0
		case c >= '0' && c <= '9':
			f.number = f.number*10 + int(c-'0')
		case c == '\n' && f.kind == '*':
			n++
		case c == '\n':
			f.skip = f.number + len("\r\n")
		}
		b = b[1:]
	}
	return n
}
