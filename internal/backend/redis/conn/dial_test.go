package conn_test

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/conn"
)

// countedCtx counts the functions that are registered with AfterFunc.
type countedCtx struct {
	context.Context //nolint:containedctx // countedCtx is a ctx itself
	funcs           atomic.Int64
}

func (c *countedCtx) Value(any) any { return nil } // otherwise package context would use the inner ctx and not AfterFunc

func (c *countedCtx) AfterFunc(f func()) func() bool {
	c.funcs.Add(1)
	stop := context.AfterFunc(c.Context, f)
	return func() bool { c.funcs.Add(-1); return stop() }
}

// A connection is closed before the Locker. It leaves no function registered. Its check by go-redis
// reads the socket if there is one.
func TestConnClosedEarlier(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for kind, dial := range map[string]func(ctx context.Context, network, addr string) (net.Conn, error){
		"socket": new(net.Dialer).DialContext,
		"other":  func(context.Context, string, string) (net.Conn, error) { a, _ := net.Pipe(); return a, nil },
	} {
		t.Run(kind, func(t *testing.T) {
			ctx := &countedCtx{Context: t.Context()}
			conn, err := conn.EndWith(ctx, dial, io.EOF)(t.Context(), "tcp", listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			raw, err := conn.(syscall.Conn).SyscallConn() //nolint:errcheck // a panic fails the test
			called := false
			if err == nil {
				err = raw.Read(func(uintptr) bool { called = true; return true })
			}
			if err != nil || called != (kind == "socket") {
				t.Errorf("the check of the connection: %v, it reads a socket: %v", err, called)
			}
			if n := ctx.funcs.Load(); n != 1 {
				t.Errorf("%d functions are registered while the connection is open, want 1", n)
			}
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
			if n := ctx.funcs.Load(); n != 0 {
				t.Errorf("%d functions are registered after Close, want 0", n)
			}
		})
	}
}

// go-redis appends to the addresses of a cluster, so a client that OwnCluster makes has its own
// slice.
func TestClusterAddrs(t *testing.T) {
	o := &redis.ClusterOptions{Addrs: make([]string, 1, 4)}
	c := conn.OwnCluster(t.Context(), o)
	defer func() { _ = c.Close() }()
	if &c.Options().Addrs[0] == &o.Addrs[0] {
		t.Error("the client shares the slice of addresses")
	}
}
