package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// All connections end while the client has many idle ones, and go-redis learns of each only when it
// uses it, as over TLS. One Renew gets a reply nevertheless, because it sends the batch again.
// Shows: L7
func TestRenewBrokenConnections(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		faults := faulty.New(t)
		rdb := redistest.Bubble(t).Client(t, func(o *redis.Options) { o.Dialer = faults.Dial(o.Dialer) })
		b := newBackend(t, rdb)
		key := b.Key(backend.KindExclusive, "k")
		renew := func() {
			rs := []backend.RenewRequest{{Key: &key, ID: next, Lease: time.Second, Retention: time.Minute}}
			if r := b.Renew(t.Context(), rs)[0]; r.Err != nil || r.Verdict != backend.VerdictLost {
				t.Errorf("verdict %v, %v; want that there is no lease", r.Verdict, r.Err)
			}
		}
		renew() // the server has the script from now on
		const idle = 16
		var held []*faulty.Fault
		var all sync.WaitGroup
		for range idle {
			held = append(held, faults.Hold(nil))
			all.Go(renew)
			synctest.Wait()
		}
		for _, f := range held {
			f.Deliver()
		}
		all.Wait()
		if n := faults.Conns(); n != idle {
			t.Fatalf("inconclusive: %d connections, want %d", n, idle)
		}
		faults.Cut()
		renew()
	})
}

// An endpoint accepts connections and closes each at the first renewal, such as a proxy whose server
// has ended. One Renew dials a few times only.
// Shows: L7
func TestRenewEndpointCloses(t *testing.T) {
	testlevel.InMemory(t)
	s, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Register("EVALSHA", func(c *server.Peer, _ string, _ []string) { c.Close() }); err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int64
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr().String(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}})
	defer func() { _ = rdb.Close() }()
	b := newBackend(t, rdb)
	key := b.Key(backend.KindExclusive, "k")
	r := b.Renew(t.Context(), []backend.RenewRequest{{Key: &key, ID: next, Lease: time.Second, Retention: time.Minute}})[0]
	if n := dials.Load(); r.Err == nil || n < 2 || n > 4 {
		t.Errorf("%d dials, %v; want 2 to 4 dials and an error", n, r.Err)
	}
}

// closedConn returns a connection that its other end closes instead of a reply.
func closedConn() net.Conn {
	client, server := net.Pipe()
	go func() {
		_, _ = server.Read(make([]byte, 4096))
		_ = server.Close()
	}()
	return client
}

// A batch has keys of two servers of a cluster. One replies, and the connections of the other one
// break. The replies do not wait for repeats of the batch.
// Shows: L7
func TestRenewPartBroken(t *testing.T) {
	testlevel.InMemory(t)
	s, err := server.NewServer("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const split = 8192 // the first slot of the broken server
	var renewals atomic.Int64
	slots := s.Register("CLUSTER", func(c *server.Peer, _ string, _ []string) {
		c.WriteLen(2)
		for _, r := range [][2]int{{0, split - 1}, {split, 16383}} {
			c.WriteLen(3)
			c.WriteInt(r[0])
			c.WriteInt(r[1])
			c.WriteLen(2)
			c.WriteBulk("127.0.0.1")
			c.WriteInt(1 + r[0]) // the dialer knows the servers by their ports
		}
	})
	evalsha := s.Register("EVALSHA", func(c *server.Peer, _ string, _ []string) {
		renewals.Add(1)
		c.WriteLen(1)
		c.WriteInt(1)
	})
	if err := errors.Join(slots, evalsha); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if addr != "127.0.0.1:1" {
			return closedConn(), nil
		}
		return new(net.Dialer).DialContext(ctx, network, s.Addr().String())
	}})
	defer func() { _ = rdb.Close() }()
	b := newBackend(t, rdb)
	var keys []backend.Key
	rs := make([]backend.RenewRequest, 8)
	for i := range rs {
		keys = append(keys, b.Key(backend.KindExclusive, fmt.Sprint(i)))
	}
	for i := range rs {
		rs[i] = backend.RenewRequest{Key: &keys[i], ID: next, Lease: time.Second, Retention: time.Minute}
	}
	kept, lost := 0, 0
	for _, r := range b.Renew(t.Context(), rs) {
		switch {
		case r.Err != nil:
			lost++
		case r.Verdict == backend.VerdictKept:
			kept++
		}
	}
	if n := int(renewals.Load()); kept == 0 || lost == 0 || kept+lost != len(rs) || n != kept {
		t.Errorf("%d renewals kept, %d without a reply, and the server got %d; want each once", kept, lost, n)
	}
}
