package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// node is a process: a Locker behind a separate network.
type node struct {
	w     *world
	index int
	locks *lockcore.Locker
	links []*link      // by server
	calm  atomic.Int64 // since when no fault occurs here, in ns of the run; 0: there is a fault

	life   context.Context //nolint:containedctx // of every call; ends after the process was killed
	bury   context.CancelFunc
	killed atomic.Bool   // no data passes any more
	doomed atomic.Bool   // the process dies with its next hand-off
	died   chan struct{} // closed by that death

	started, ended, held atomic.Int64 // counted by the Observer
}

// link is the network between a process and a server.
type link struct {
	*node
	server *server
	rdb    *redis.Client
	faults *faulty.Network

	bad   atomic.Int64 // since when no fault occurs here, in ns of the run; latency may continue; 0: there is a fault
	slow  atomic.Bool
	swell time.Duration // latency between the faults of a storm; used by one goroutine

	silent    atomic.Bool  // no data passes
	deaf      atomic.Bool  // no message passes
	drops     atomic.Int64 // number of messages to drop
	copies    atomic.Int64 // number of rotations to send twice
	greetings atomic.Int64 // connections during their handshake
}

// newNode starts a process in slot i that has no faults since calm.
func (w *world) newNode(i int, calm time.Duration) *node {
	n := &node{w: w, index: i, died: make(chan struct{})}
	n.life, n.bury = context.WithCancel(w.root)
	n.calm.Store(int64(calm))
	var clients []*redis.Client
	for _, s := range w.servers {
		l := &link{node: n, server: s, faults: faulty.New(w.t)}
		l.bad.Store(1)
		l.latency(breeze)
		o := s.Options()
		o.Dialer = l.dialer(o.Dialer)
		// No call may wait for a connection: it would use a timer that go-redis shares in the whole
		// process. A timer of another bubble would be fatal.
		o.PoolSize = 1000
		l.rdb = redis.NewClient(o)
		n.links, clients = append(n.links, l), append(clients, l.rdb)
	}
	var err error
	if o := (lockcore.Options{Observer: n}); len(clients) == 1 {
		n.locks, err = lockcore.New(clients[0], o)
	} else {
		o.Terms.Lease = longest
		n.locks, err = lockcore.NewQuorum(clients, o)
	}
	if err != nil {
		panic(err) // the options are constant
	}
	return n
}

// calmFor returns for how long the network of the process has had no fault.
func (n *node) calmFor() time.Duration {
	since := n.calm.Load()
	if since == 0 {
		return 0
	}
	return n.w.now() - time.Duration(since)
}

// goodFor returns for how long no fault can have disturbed renewals. It returns 0 for a killed
// process, even after the end of the fault during which it was killed.
func (n *node) goodFor() time.Duration {
	good := n.w.now()
	for _, l := range n.links {
		since := l.bad.Load()
		if since == 0 || l.slow.Load() || n.killed.Load() {
			return 0
		}
		good = min(good, n.w.now()-max(time.Duration(since), l.server.votes()))
	}
	return good
}

// close closes the Locker without faults, so it has nothing to wait for.
func (n *node) close() {
	n.bury()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := n.locks.Close(ctx); err != nil {
		n.w.fail("I14", "", "Close of process %d: %v", n.index, err)
	}
	for _, l := range n.links {
		_ = l.rdb.Close() // the Locker is closed
	}
	if s, e, h := n.started.Load(), n.ended.Load(), n.held.Load(); s != e || h != 0 {
		n.w.fail("I13", "", "process %d: %d calls started, %d ended, and %d are held at the end", n.index, s, e, h)
	}
}

type outcomeKey struct{}

// outcome records the end of one call, as its Observer receives it.
type outcome struct {
	released atomic.Pointer[event.Released]
}

// Start counts a call.
func (n *node) Start(ctx context.Context, _ event.Acquisition) context.Context {
	n.started.Add(1)
	return ctx
}

// Event counts the end of a call, and keeps how it was released.
func (n *node) Event(ctx context.Context, e event.Event) {
	switch e := e.(type) {
	case event.Granted:
		n.held.Add(1)
	case event.Released:
		n.held.Add(-1)
		n.ended.Add(1)
		if o, ok := ctx.Value(outcomeKey{}).(*outcome); ok {
			o.released.Store(&e)
		}
	case event.Refused, event.Admitted, event.Replayed:
		n.ended.Add(1)
	}
}

// Traceparent names the process.
func (n *node) Traceparent(context.Context) string { return fmt.Sprintf("node-%d", n.index) }
