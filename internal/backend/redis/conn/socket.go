package conn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
)

// errSilent makes go-redis close an idle connection.
var errSilent = errors.New("the connection has been silent since another one got no reply")

// bind returns conn as a socket, which is closed when ctx ends. If conn is closed first, it is no
// longer registered with ctx.
//
// ask is for endpoint.ask.
func bind(ctx context.Context, network string, conn net.Conn, dials *dials, to *endpoint, ask func() bool) net.Conn {
	s := &socket{Conn: conn, network: network, dials: dials, to: to, ask: ask, unbind: context.AfterFunc(ctx, func() { _ = conn.Close() })}
	s.heard.Store(dials.to.now())
	if c, ok := conn.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			s.raw = raw
		}
	}
	if dials.patience > 0 {
		to.add(s)
	}
	return s
}

// socket is a connection of an own client.
//
// A firewall may drop idle connections without notice. The calls that then take them from the pool
// would wait for their whole timeout, one after the other. So a read that ends without a reply makes
// all connections to its server suspect that have received nothing since it began. go-redis checks
// an idle connection by SyscallConn before a call gets it, except on Windows. It closes a suspect,
// and dials after a few of them. A connection in use is not checked: its reply clears it.
//
// The connections of renewals are no suspects. On a network whose round trip is longer than the
// timeout of a call, a renewal may still arrive in time on an open connection, but not on a new one,
// which needs several round trips. The watchdog sends a renewal without a reply again beside the
// first one, on another connection.
//
// An error before the first byte from the server becomes the error of a dial, because no command of
// a call has been sent: go-redis first sends HELLO, sends nothing else before the reply, and gives up
// the connection after an error. A server at maxclients, or in protected mode, sends an error reply
// and closes the connection. go-redis would take that for the reply of a server that does not know
// HELLO, and send more commands. So the socket returns an error instead of such a reply.
type socket struct {
	net.Conn
	network string
	unbind  func() bool
	raw     syscall.RawConn // nil if Conn has no socket, such as a TLS connection
	dials   *dials
	to      *endpoint
	ask     func() bool
	heard   atomic.Int64 // end of the last read that received data, or of the dial
	awaits  atomic.Int64 // start of a read that waits for the first byte of a reply; 0: none; cut: endpoint.cutSilent ends it

	// Not used at the same time, because go-redis writes a command and reads its reply on one
	// goroutine.
	replied bool  // a read has received data
	asked   bool  // a command was written, and no read has begun since
	refused error // of all reads and writes, after one that failed before any data was received
}

func (s *socket) Close() error {
	s.unbind()
	s.to.remove(s)
	return s.Conn.Close()
}

func (s *socket) Read(b []byte) (int, error) {
	switch {
	case s.replied:
		return s.read(b)
	case s.refused != nil:
		return 0, s.refused
	}
	n, err := s.read(b)
	if refusal := refusalIn(b[:n]); refusal != "" {
		n, err = 0, errors.New(refusal)
	}
	if s.replied = n > 0; s.replied || err == nil {
		return n, err
	}
	return 0, s.refuse(err)
}

func (s *socket) Write(b []byte) (int, error) {
	if s.refused != nil {
		return 0, s.refused
	}
	n, err := s.Conn.Write(b)
	if err != nil && !s.replied {
		err = s.refuse(err)
	}
	s.asked = s.replied // the reply to HELLO is not awaited, because no command has been sent
	return n, err
}

// refuse makes err, which came before any data, the error of all reads and writes.
func (s *socket) refuse(err error) error {
	s.refused = fmt.Errorf("%w", dialError(s.network, s.RemoteAddr(), err)) // go-redis removes one wrapper from an error of HELLO
	return s.refused
}

// refusalIn returns the first reply of a connection if it is an error with which the server closes
// the connection, and otherwise "".
func refusalIn(reply []byte) string {
	for _, code := range []string{"-ERR max number of clients ", "-DENIED "} { // a Cluster counts "clients + cluster connections"
		if bytes.HasPrefix(reply, []byte(code)) {
			line, _, _ := bytes.Cut(reply[1:], []byte("\r\n"))
			return string(line)
		}
	}
	return ""
}

func (s *socket) read(b []byte) (int, error) {
	if s.dials.patience == 0 {
		return s.Conn.Read(b)
	}
	start, awaits := s.dials.to.now(), s.asked
	if awaits {
		s.asked = false
		s.awaits.Store(start)
		s.to.watch()
	}
	n, err := s.Conn.Read(b)
	if awaits && !s.awaits.CompareAndSwap(start, 0) {
		return 0, os.ErrDeadlineExceeded
	}
	if n > 0 {
		now := s.dials.to.now()
		s.heard.Store(now)
		if awaits && now-start > int64(quickReply) {
			s.to.bePatient(now)
		}
	} else if errors.Is(err, os.ErrDeadlineExceeded) && s.dials.to.now()-start >= int64(s.dials.patience) {
		s.to.suspect(start)
	}
	return n, err
}

// suspect records that a read that began at start has no reply. A later start wins, because it
// includes the suspects of an earlier one.
func (e *endpoint) suspect(start int64) {
	for before := e.silent.Load(); before < start && !e.silent.CompareAndSwap(before, start); before = e.silent.Load() {
	}
}

// SyscallConn returns the RawConn of the socket. net.TCPConn allocates a new one at each call.
func (s *socket) SyscallConn() (syscall.RawConn, error) {
	switch {
	case s.dials.patience > 0 && s.heard.Load() < s.to.silent.Load():
		return nil, errSilent
	case s.raw == nil:
		return unchecked{}, nil
	}
	return s.raw, nil
}

// unchecked is the RawConn of a connection without a socket. For go-redis such a connection is
// alive.
type unchecked struct{}

func (unchecked) Control(func(uintptr)) error    { return errors.ErrUnsupported }
func (unchecked) Read(func(uintptr) bool) error  { return nil }
func (unchecked) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
