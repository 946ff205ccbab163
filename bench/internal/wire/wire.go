// Package wire counts the commands that the clients of a process send to Redis.
package wire

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"
)

// Counter counts the commands of the clients that dial with it. The server cannot count them. On
// Redis 7.0 both INFO commandstats and total_commands_processed also count the commands that
// scripts call. For example, 5 EVALSHA of a script with 3 commands count as 20.
type Counter struct{ Commands atomic.Int64 }

var dialer = net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute} // as go-redis dials by default

// Dial is a dialer for go-redis whose connections are counted.
func (c *Counter) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil, errors.Join(errors.New("wire: not a TCP connection: "+addr), conn.Close())
	}
	return &countedConn{TCPConn: tcp, counter: c}, nil
}

// countedConn embeds the TCPConn rather than a net.Conn. So go-redis finds SyscallConn and checks
// an idle connection as in production, at the same cost.
type countedConn struct {
	*net.TCPConn

	counter *Counter
	frames  frames
}

func (c *countedConn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	c.counter.Commands.Add(c.frames.count(b[:n]))
	return n, err
}

// frames counts commands in a stream of RESP, however it is cut: "*2\r\n$3\r\nGET\r\n$1\r\na\r\n"
// is one. It skips the content of an argument by its length.
type frames struct {
	kind   byte // of the line being read: * or $
	number int  // in that line
	skip   int  // remaining bytes of an argument
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
