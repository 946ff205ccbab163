package locktest

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

var (
	errDown   = errors.New("locktest: nobody listens")
	errClosed = errors.New("locktest: Faults are closed")
)

// Faults is a network that fails on command. It stands between clients and Redis:
//
//	faults := locktest.NewFaults(t)
//	options.Dialer = faults.Dial(options.Dialer)
//
// It works with real connections and, in a testing/synctest bubble, with those of [Server]; it has no clock but time, and
// obeys deadlines as a socket does. A client whose connection fails sees what it would see of a real network: it reads
// nothing until its own deadline, or the end of the stream. Use one Faults for each process that a test plays.
//
// All methods may be called at any time from any goroutine.
type Faults struct {
	names resp.Names
	work  sync.WaitGroup // two goroutines for each connection

	mu      sync.Mutex
	changed sync.Cond // on mu
	conns   map[*conn]struct{}
	planted []*Fault
	latency func() time.Duration
	// What does not pass. Dials need both ways.
	deafServer, deafClient, down, closed bool
}

// NewFaults returns a network without a fault. It is cut when the test ends.
func NewFaults(tb testing.TB) *Faults {
	tb.Helper()
	f := &Faults{conns: make(map[*conn]struct{})}
	f.changed.L = &f.mu
	tb.Cleanup(f.close)
	return f
}

// Dial returns a dialer whose connections are next's, with f in between. With TLS next must do it: f reads what passes.
func (f *Faults) Dial(next Dialer) Dialer {
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

// Silence makes the network a black hole, without telling anybody: what is sent from now on arrives nowhere, and dials
// hang. Heal delivers what was sent meanwhile on connections that are still open, as TCP does.
func (f *Faults) Silence() { f.set(func() { f.deafServer, f.deafClient = true, true }) }

// SilenceReplies lets requests through, and Redis acts on them, but no reply or message comes back until Heal.
func (f *Faults) SilenceReplies() { f.set(func() { f.deafClient = true }) }

// Down cuts every connection and refuses new ones until Heal.
func (f *Faults) Down() {
	f.set(func() { f.down = true })
	f.Cut()
}

// Heal ends Silence, SilenceReplies and Down. Planted faults and delays stay.
func (f *Faults) Heal() { f.set(func() { f.deafServer, f.deafClient, f.down = false, false, false }) }

// Cut closes every connection on both sides. What was on its way is lost. New connections may be made at once.
func (f *Faults) Cut() {
	f.set(func() {
		for c := range f.conns {
			c.cutLocked()
		}
	})
}

// Delay makes every request and every reply take d longer, each way. They stay in order.
func (f *Faults) Delay(d time.Duration) { f.DelayFunc(func() time.Duration { return d }) }

// DelayFunc calls latency for the delay of each request and each reply. nil ends all delays. latency must not call f.
func (f *Faults) DelayFunc(latency func() time.Duration) { f.set(func() { f.latency = latency }) }

// Conns returns how many connections clients hold open.
func (f *Faults) Conns() int {
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

// set changes what f does, and wakes everything that waits for a change.
func (f *Faults) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	f.changed.Broadcast()
	for c := range f.conns {
		c.changed.Broadcast()
	}
}

func (f *Faults) close() {
	f.set(func() { f.closed = true })
	f.Cut()
	f.work.Wait()
}

// mayDial hangs while nothing passes.
func (f *Faults) mayDial(ctx context.Context) error {
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

func (f *Faults) connect(server net.Conn) (net.Conn, error) {
	c := &conn{f: f, server: server}
	c.changed.L = &f.mu
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.down { // meanwhile
		_ = server.Close()
		return nil, &net.OpError{Op: "dial", Net: server.RemoteAddr().Network(), Err: errDown}
	}
	f.conns[c] = struct{}{}
	f.work.Go(c.toServer)
	f.work.Go(c.fromServer)
	return c, nil
}
