package main

import (
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

const (
	prSetTimerSlack = 29       // of linux/prctl.h
	chunkSize       = 64 << 10 // the most that a proxy reads at once
	retryFull       = 100 * time.Microsecond
)

// proxy simulates a network with a given round trip. It delivers each chunk half a round trip after
// it was read, in both directions. It reads further chunks meanwhile, so it does not limit the
// bytes in flight.
//
// One thread reads and delivers, with system calls. Goroutines that sleep and wake each other would
// take several times as long for each chunk, and so would limit the throughput.
type proxy struct {
	to       string
	by       time.Duration // one direction
	listener net.Listener
	epoll    int
	wake     [2]int // a pipe: close writes to it
	wg       sync.WaitGroup

	mu      sync.Mutex
	streams map[int]*stream // by the socket that is read
	closed  bool

	queue []late    // of run. All chunks are late by the same time, so they are due in this order
	full  []*stream // of run: streams whose chunks are due, but whose receiver has no room
}

// stream is one direction of a connection.
type stream struct {
	from, to int
	back     *stream
	rest     []byte // due, but the receiver had no room
	ending   bool   // the end is due, after rest
	ended    bool
}

// late is a chunk of a stream that is not delivered yet.
type late struct {
	due time.Time
	s   *stream
	b   []byte // empty: the sender has closed the connection
}

// startProxy starts a proxy to addr on a free port of the loopback interface.
func startProxy(addr string, roundTrip time.Duration) (*proxy, error) {
	p := &proxy{to: addr, by: roundTrip / 2, streams: map[int]*stream{}}
	var err error
	if p.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	if err = syscall.Pipe2(p.wake[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return nil, errors.Join(err, syscall.Close(p.epoll))
	}
	if err = p.watch(p.wake[0]); err == nil {
		p.listener, err = net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	}
	if err != nil {
		p.closeAll()
		return nil, err
	}
	p.wg.Go(p.accept)
	p.wg.Go(p.run)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// close ends all connections, and returns when the goroutines have ended.
func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	_, _ = syscall.Write(p.wake[1], []byte{0})
	p.wg.Wait()
	p.closeAll()
}

func (p *proxy) closeAll() {
	for fd := range p.streams {
		_ = syscall.Close(fd)
	}
	for _, fd := range []int{p.epoll, p.wake[0], p.wake[1]} {
		_ = syscall.Close(fd)
	}
}

func (p *proxy) watch(fd int) error {
	return syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

func (p *proxy) accept() { // ends with the listener
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to) //nolint:noctx // on the loopback interface
		if err != nil {
			_ = client.Close()
			continue
		}
		p.keep(socket(client), socket(server))
	}
}

// socket returns a duplicate of the socket of conn, and closes conn. Otherwise the runtime would
// also poll the socket.
func socket(conn net.Conn) int {
	defer conn.Close()
	fd := -1
	if raw, err := conn.(*net.TCPConn).SyscallConn(); err == nil { //nolint:errcheck // the listener and the dialer are of TCP
		_ = raw.Control(func(f uintptr) { fd, _ = syscall.Dup(int(f)) })
	}
	return fd
}

// keep begins to forward between two sockets. If close was called before, it closes the sockets.
func (p *proxy) keep(client, server int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		_ = syscall.Close(client)
		_ = syscall.Close(server)
		return
	}
	commands, replies := &stream{from: client, to: server}, &stream{from: server, to: client}
	commands.back, replies.back = replies, commands
	for _, s := range []*stream{commands, replies} {
		p.streams[s.from] = s
		_ = p.watch(s.from) // fails only without a socket; then the client gets no reply
	}
}

// run reads and delivers until close.
func (p *proxy) run() {
	runtime.LockOSThread()                                                 // never unlocked: the thread, whose timer slack is changed, ends with the goroutine
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0) // otherwise it may sleep 50 µs too long
	events := make([]syscall.EpollEvent, 256)
	b := make([]byte, chunkSize)
	for {
		p.sleep()
		n, _ := syscall.EpollWait(p.epoll, events, 0)
		for _, e := range events[:max(n, 0)] {
			if int(e.Fd) == p.wake[0] {
				return
			}
			p.read(int(e.Fd), b)
		}
		p.deliver()
	}
}

// sleep returns when a chunk is due or there is something to read.
func (p *proxy) sleep() {
	var limit *syscall.Timespec // nil: no chunk is on its way
	switch {
	case len(p.full) > 0:
		limit = new(syscall.NsecToTimespec(int64(retryFull)))
	case len(p.queue) > 0:
		limit = new(syscall.NsecToTimespec(int64(max(time.Until(p.queue[0].due), 0))))
	}
	fd := struct {
		fd      int32
		events  int16
		revents int16
	}{int32(p.epoll), 1, 0} // 1 is POLLIN
	_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fd)), 1, uintptr(unsafe.Pointer(limit)), 0, 0, 0) // a signal ends it early
}

func (p *proxy) read(fd int, b []byte) {
	n, err := syscall.Read(fd, b)
	if again(err) {
		return
	}
	if err != nil || n == 0 {
		n = 0
		_ = syscall.EpollCtl(p.epoll, syscall.EPOLL_CTL_DEL, fd, nil)
	}
	p.mu.Lock()
	s := p.streams[fd]
	p.mu.Unlock()
	p.queue = append(p.queue, late{time.Now().Add(p.by), s, slices.Clone(b[:n])})
}

func again(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR)
}

// deliver writes the chunks that are due.
func (p *proxy) deliver() {
	p.full = slices.DeleteFunc(p.full, p.flush)
	now := time.Now()
	done := 0
	for ; done < len(p.queue) && !p.queue[done].due.After(now); done++ {
		l := p.queue[done]
		p.queue[done] = late{}
		waits := len(l.s.rest) > 0
		l.s.rest = append(l.s.rest, l.b...)
		l.s.ending = len(l.b) == 0
		if !waits && !p.flush(l.s) {
			p.full = append(p.full, l.s)
		}
	}
	p.queue = p.queue[done:]
}

// flush writes the rest of s, and reports whether all of it is written.
func (p *proxy) flush(s *stream) bool {
	for len(s.rest) > 0 {
		n, err := syscall.Write(s.to, s.rest)
		if again(err) {
			return false
		}
		if err != nil { // the receiver has closed the connection
			break
		}
		s.rest = s.rest[n:]
	}
	s.rest = nil
	if s.ending {
		p.end(s)
	}
	return true
}

// end shuts down the receiving socket of s. Both sockets are closed when both directions have
// ended, because the number of a closed socket may be used again.
func (p *proxy) end(s *stream) {
	s.ended = true
	_ = syscall.Shutdown(s.to, syscall.SHUT_RDWR)
	if !s.back.ended {
		return
	}
	p.mu.Lock()
	delete(p.streams, s.from)
	delete(p.streams, s.to)
	p.mu.Unlock()
	_ = syscall.Close(s.from)
	_ = syscall.Close(s.to)
}
