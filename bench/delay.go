package main

import (
	"context"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	delayGroup = "delay"  // what -scenario calls all scenarios with a delay
	chunkSize  = 16 << 10 // of what a proxy reads at once
	pings      = 15
	maxLate    = 1 << 16 // chunks on their way
)

// proxy is a network with a round trip: it forwards commands at once and delivers each reply a fixed time after it came.
// To clients whose keys are not contended it makes no difference on which of the two ways a delay is.
//
// All replies are late by the same time, so they are due in the order in which they came, and one goroutine delivers them.
type proxy struct {
	to       string
	by       time.Duration
	listener net.Listener
	queue    chan late
	done     chan struct{} // closed by close
	wg       sync.WaitGroup

	mu     sync.Mutex
	conns  []net.Conn
	closed bool
}

// late is a part of a reply on its way.
type late struct {
	due time.Time
	to  net.Conn
	b   []byte // empty: the server has closed the connection
}

// startProxy starts a proxy to addr on a free port of the loopback interface.
func startProxy(addr string, by time.Duration) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not wait
	if err != nil {
		return nil, err
	}
	p := &proxy{to: addr, by: by, listener: l, queue: make(chan late, maxLate), done: make(chan struct{})}
	p.wg.Go(p.accept)
	p.wg.Go(p.deliver)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// close ends all connections, and returns when the goroutines have ended.
func (p *proxy) close() {
	_ = p.listener.Close()
	close(p.done)
	p.mu.Lock()
	p.closed = true
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
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
		if !p.keep(client, server) {
			return
		}
		p.wg.Go(func() { p.forward(client, server) })
		p.wg.Go(func() { p.hold(client, server) })
	}
}

// keep notes the connections that close ends. It closes them itself if close came before.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	p.conns = append(p.conns, conns...)
	return true
}

// forward ends with one of the connections, and then ends the server's.
func (p *proxy) forward(client, server net.Conn) {
	defer server.Close()
	b := make([]byte, chunkSize)
	for {
		n, err := client.Read(b)
		if err != nil {
			return
		}
		if _, err := server.Write(b[:n]); err != nil {
			return
		}
	}
}

// hold ends with the server's connection, and queues the end too.
func (p *proxy) hold(client, server net.Conn) {
	for b := make([]byte, chunkSize); ; {
		n, err := server.Read(b)
		if err != nil {
			n = 0
		}
		select {
		case p.queue <- late{time.Now().Add(p.by), client, slices.Clone(b[:n])}:
		case <-p.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// deliver has a thread for itself, which sleeps more precisely than the runtime does.
func (p *proxy) deliver() {
	runtime.LockOSThread() // never unlocked: the thread, whose timer slack is changed, ends with the goroutine
	setTimerSlack()
	for {
		select {
		case l := <-p.queue:
			sleepPrecisely(l.due)
			if len(l.b) == 0 {
				_ = l.to.Close()
				continue
			}
			_, _ = l.to.Write(l.b) // the client may be gone
		case <-p.done:
			return
		}
	}
}

// behind is s as clients see it through p.
func (s *server) behind(p *proxy) *server {
	far := *s
	far.addr = p.addr()
	return &far
}

var errPing = errors.New("bench: no PONG")

// ping is the median round trip to addr, of several.
func ping(ctx context.Context, addr string) (time.Duration, error) {
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return 0, err
	}
	var took []float64
	b := make([]byte, 64)
	for range pings {
		start := time.Now()
		if _, err := conn.Write([]byte("PING\r\n")); err != nil {
			return 0, err
		}
		n, err := conn.Read(b)
		if err != nil {
			return 0, err
		}
		if string(b[:n]) != "+PONG\r\n" {
			return 0, errPing
		}
		took = append(took, float64(time.Since(start)))
	}
	return time.Duration(middle(took)), nil
}
