package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

// firewall drops the connections that are open at a time without notice: data in them is lost, and
// they are not closed. New connections work.
type firewall struct {
	dropped atomic.Int64 // number of the last connection that is dropped
	made    atomic.Int64
	lost    atomic.Int64 // writes
}

// dial returns a Dialer. Without a socket its connections are like those of TLS.
func (f *firewall) dial(next func(context.Context, string, string) (net.Conn, error), socket bool) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := natConn{conn, f, f.made.Add(1)}
		if raw, ok := conn.(syscall.Conn); ok && socket {
			return natSocket{c, raw}, nil
		}
		return c, nil
	}
}

type natConn struct {
	net.Conn
	f *firewall
	n int64
}

type natSocket struct {
	natConn
	raw syscall.Conn
}

func (s natSocket) SyscallConn() (syscall.RawConn, error) { return s.raw.SyscallConn() }

func (c natConn) Write(b []byte) (int, error) {
	if c.n <= c.f.dropped.Load() {
		c.f.lost.Add(1)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// After a firewall has dropped all idle connections, one call waits for a reply in vain. All later
// calls and releases take new connections, although the pools still have dead ones.
func TestSilentConnections(t *testing.T) {
	for name, socket := range map[string]bool{"socket": true, "TLS": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := realWorld(t), new(firewall)
			o := w.Options()
			o.Dialer = f.dial(redis.NewDialer(o), socket)
			l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
			var all sync.WaitGroup
			for round := range 20 {
				for i := range callers {
					all.Go(func() {
						le, err := l.Acquire(t.Context(), fmt.Sprint(name, round, i), noWait)
						if err == nil {
							err = le.Release(t.Context())
						}
						if err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
			}
			if n := f.made.Load(); n < 6 {
				t.Fatalf("inconclusive: %d connections", n)
			}
			f.dropped.Store(f.made.Load())
			failed := 0
			for i := range callers {
				le, err := l.Acquire(t.Context(), fmt.Sprint(name, i), noWait)
				if errors.Is(err, lockcore.ErrUnavailable) {
					failed++
					continue
				}
				ok(t, err)
				ok(t, le.Release(t.Context()))
			}
			if lost := f.lost.Load(); lost != 1 || failed > 1 {
				t.Errorf("of %d connections %d were used after their end, %d of %d calls failed", f.dropped.Load(), lost, failed, callers)
			}
		})
	}
}

// A subscription that receives nothing makes no connection suspect.
func TestSilentSubscription(t *testing.T) {
	t.Parallel()
	w, f := realWorld(t), new(firewall)
	o := w.Options()
	o.Dialer = f.dial(redis.NewDialer(o), true)
	l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
	access.Of(l).Subscribe(time.Minute)
	eventually(t, "it is subscribed", func() bool { return len(w.Redis.PubSubChannels(t.Context(), "*").Val()) == 1 })
	use := func() {
		le, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		ok(t, le.Release(t.Context()))
	}
	use()
	made := f.made.Load()
	time.Sleep(600 * time.Millisecond) // longer than a read of a call may wait
	use()
	if n := f.made.Load() - made; n != 0 {
		t.Errorf("%d connections were made after a pause", n)
	}
}
