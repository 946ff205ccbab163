package redistest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Relay is a TCP proxy with a silent mode: it then drops all data in both directions, and closes no
// connection. Use it for links without a dialer of the test, such as the one between a primary and
// its replica.
type Relay struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	to     string
	silent bool
	conns  map[net.Conn]struct{}
	closed bool
}

// Proxy starts a Relay to addr on a free port of the loopback interface and stops it when the test
// ends.
func Proxy(tb testing.TB, addr string) *Relay {
	tb.Helper()
	l, err := new(net.ListenConfig).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	r := &Relay{to: addr, listener: l, conns: map[net.Conn]struct{}{}}
	r.wg.Go(r.accept)
	tb.Cleanup(r.stop)
	return r
}

// Port returns the port on which the Relay listens.
func (r *Relay) Port() string {
	_, port, _ := net.SplitHostPort(r.listener.Addr().String()) // of a TCP listener
	return port
}

// ReplicaOf returns the arguments that make a server a replica of the one behind the Relay.
func (r *Relay) ReplicaOf() []string {
	return []string{"--replicaof", "127.0.0.1 " + r.Port()}
}

// Silence makes the Relay drop all data.
func (r *Relay) Silence() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = true
}

// Heal ends a Silence. It closes all connections, because a stream cannot continue after lost data.
func (r *Relay) Heal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		r.silent = false
		r.cutLocked()
	}
}

// Move makes the Relay lead to another address. It closes all connections.
func (r *Relay) Move(addr string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = addr
	r.cutLocked()
}

func (r *Relay) cutLocked() {
	for c := range r.conns {
		_ = c.Close()
	}
}

func (r *Relay) stop() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.closed = true
	r.cutLocked()
	r.mu.Unlock()
	r.wg.Wait()
}

func (r *Relay) accept() {
	for {
		in, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.wg.Go(func() { r.serve(in) })
	}
}

func (r *Relay) serve(in net.Conn) {
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	out, err := net.Dial("tcp", to) //nolint:noctx // of the loopback interface
	if err != nil || !r.keep(to, in, out) {
		_ = in.Close()
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(&lossy{Conn: way[1], relay: r}, io.Reader(struct{ io.Reader }{way[0]})) // not by splice, which would bypass lossy
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, in)
	delete(r.conns, out)
}

// keep makes two connections end with the Relay. It returns false if the Relay is closed, or has
// moved since.
func (r *Relay) keep(to string, conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	ok := !r.closed && r.to == to
	for _, c := range conns {
		if !ok {
			_ = c.Close()
			continue
		}
		r.conns[c] = struct{}{}
	}
	return ok
}

// lossy is an end of a connection that drops data while the Relay is silent.
type lossy struct {
	net.Conn
	relay *Relay
}

func (l *lossy) Write(b []byte) (int, error) {
	l.relay.mu.Lock()
	silent := l.relay.silent
	l.relay.mu.Unlock()
	if silent {
		return len(b), nil
	}
	return l.Conn.Write(b)
}

// ReadFrom hides the ReadFrom of the connection, which would bypass Write.
func (l *lossy) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{l}, r)
}
