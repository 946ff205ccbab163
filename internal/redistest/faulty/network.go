// Package faulty gives tests a network between clients and Redis that loses, delays, cuts or holds
// back requests and replies on command.
package faulty

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest/resp"
)

// Dialer is the type of redis.Options.Dialer.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Users know this network as locktest.Faults.
var (
	errDown   = errors.New("locktest: the network is down")
	errClosed = errors.New("locktest: the network is closed")
)

// Network is a network between clients and Redis that fails on command:
//
//	faults := faulty.New(t)
//	options.Dialer = faults.Dial(options.Dialer)
//
// It works with real connections and, in a testing/synctest bubble, with a server in memory. It uses
// no clock but that of package time, and honors deadlines like a socket. A client whose connection
// fails sees what a real network would show: it reads nothing until its own deadline, or reads the
// end of the stream. Use one Network for each process that a test simulates.
//
// All methods may be called at any time from any goroutine.
type Network struct {
	names resp.Names
	work  sync.WaitGroup // two goroutines for each connection

	mu      sync.Mutex
	changed sync.Cond // on mu
	conns   map[*conn]struct{}
	planted []*Fault
	latency func() time.Duration
	// The directions that are blocked. A dial needs both directions.
	deafServer, deafClient, down, closed bool
}

// New returns a network without faults. It cuts all connections when the test ends.
func New(tb testing.TB) *Network {
	tb.Helper()
	f := &Network{conns: make(map[*conn]struct{})}
	f.changed.L = &f.mu
	tb.Cleanup(f.close)
	return f
}

// Dial returns a dialer that calls next and passes its connections through f. For TLS, next must
// encrypt, because f reads the data.
func (f *Network) Dial(next Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := f.mayDial(ctx); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		server, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return f.connect(server)
	}
}

// Silence makes the network a black hole. Data that is sent from now on does not arrive, and dials
// hang. No error shows this. Heal delivers the data that was sent meanwhile on connections that are
// still open, as TCP does.
func (f *Network) Silence() { f.set(func() { f.deafServer, f.deafClient = true, true }) }

// SilenceReplies lets requests pass, and Redis executes them, but no reply or message arrives until
// Heal.
func (f *Network) SilenceReplies() { f.set(func() { f.deafClient = true }) }

// Down cuts every connection and refuses new ones until Heal.
func (f *Network) Down() {
	f.set(func() { f.down = true })
	f.Cut()
}

// Heal ends Silence, SilenceReplies and Down. Planted faults and delays remain.
func (f *Network) Heal() { f.set(func() { f.deafServer, f.deafClient, f.down = false, false, false }) }

// Cut closes every connection on both sides. Data on its way is lost. New connections are possible
// at once.
func (f *Network) Cut() {
	f.set(func() {
		for c := range f.conns {
			c.cutLocked()
		}
	})
}

// Delay delays every request and every reply by d. They stay in order.
func (f *Network) Delay(d time.Duration) { f.DelayFunc(func() time.Duration { return d }) }

// DelayFunc calls latency for the delay of each request and each reply. A nil latency ends all
// delays. latency must not call f.
func (f *Network) DelayFunc(latency func() time.Duration) { f.set(func() { f.latency = latency }) }

// Conns returns the number of connections that clients have open.
func (f *Network) Conns() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for c := range f.conns {
		if !c.closed && !c.cut {
			n++
		}
	}
	return n
}

// set changes the behavior of f, and wakes every goroutine that waits for a change.
func (f *Network) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed.Broadcast()
	for c := range f.conns {
		c.changed.Broadcast()
	}
}

func (f *Network) close() {
	f.set(func() { f.closed = true })
	f.Cut()
	f.work.Wait()
}

// mayDial returns when a dial may continue. It waits while the network is silent in one direction.
func (f *Network) mayDial(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { f.set(func() {}) })
	defer stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	for {
		switch {
		case f.closed:
			return errClosed
		case f.down:
			return errDown
		case ctx.Err() != nil:
			return ctx.Err()
		case !f.deafServer && !f.deafClient:
			return nil
		}
		f.changed.Wait()
	}
}

func (f *Network) connect(server net.Conn) (net.Conn, error) {
	c := &conn{f: f, server: server}
	c.changed.L = &f.mu
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.down { // f changed during the dial
		_ = server.Close()
		return nil, &net.OpError{Op: "dial", Net: server.RemoteAddr().Network(), Err: errDown}
	}
	f.conns[c] = struct{}{}
	f.work.Go(c.toServer)
	f.work.Go(c.fromServer)
	return c, nil
}
