package lockcore_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend/redis/wire"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// badReply replaces the reply to rotate.lua, which the server runs. It closes ran when the reply
// has arrived, and delivers its own reply when gone is closed.
type badReply struct {
	net.Conn
	reply     string
	ran, gone chan struct{}
	now       bool
}

func (c *badReply) Write(b []byte) (int, error) {
	c.now = bytes.Contains(b, fmt.Append(nil, wire.Rotate.SHA[1])) || bytes.Contains(b, []byte(wire.Rotate.Text))
	return c.Conn.Write(b)
}

func (c *badReply) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.now && err == nil && n > 0 && b[0] != '-' {
		c.now = false
		close(c.ran)
		<-c.gone
		return copy(b, c.reply), nil
	}
	return n, err
}

// Redis runs a release-and-acquire, but its reply has an unknown shape. The next request may have
// the key, so it is withdrawn, and the key is free long before its lease ends.
func TestRotateBadReply(t *testing.T) {
	for _, reply := range []string{"*1\r\n+x\r\n", "*0\r\n", "+OK\r\n", "*2\r\n:1\r\n+x\r\n", "*3\r\n:1\r\n:1\r\n+x\r\n"} {
		t.Run(fmt.Sprintf("%q", reply), func(t *testing.T) {
			t.Parallel()
			o, obs := redistest.Real(t).Options(), new(locktest.Recorder)
			ran, gone, dial := make(chan struct{}), make(chan struct{}), redis.NewDialer(o)
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dial(ctx, network, addr)
				return &badReply{Conn: conn, reply: reply, ran: ran, gone: gone}, err
			}
			rdb := redis.NewClient(o)
			t.Cleanup(func() { _ = rdb.Close() })
			l := lockerFor(t, rdb, lockcore.Options{NoGroups: true, Observer: obs})
			held := take(t, l, "k", lockcore.Terms{Lease: 30 * time.Minute})
			ctx, cancel := context.WithCancel(t.Context())
			left, released := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(left)
				_, _ = l.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever, Lease: time.Hour}) // another lease: no hand-off
			}()
			eventually(t, "a waiter", func() bool { return len(locktest.EventsOf[lockcore.Waiting](obs)) > 0 })
			go func() {
				defer close(released)
				_ = held.Release(t.Context())
			}()
			<-ran
			cancel() // the waiter gives up while the reply is under way
			<-left
			close(gone)
			<-released
			eventually(t, "the grant is withdrawn", func() bool { // its lease is one hour
				h, err := l.Inspect(t.Context(), lockcore.KindExclusive, "k")
				return err == nil && h.State == lockcore.StateFree
			})
		})
	}
}

// quiet is an Observer that does nothing.
type quiet struct{}

func (quiet) Start(ctx context.Context, _ lockcore.Acquisition) context.Context { return ctx }
func (quiet) Event(context.Context, lockcore.Event)                             {}

// hangs is an Observer whose Traceparent hangs.
type hangs struct {
	quiet
	on   atomic.Bool
	free chan struct{}
}

func (h *hangs) Traceparent(context.Context) string {
	if h.on.Load() {
		<-h.free
	}
	return ""
}

// Traceparent of the Observer hangs while the watchdog publishes a new holder. Close is not
// delayed.
func TestRenewalHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &hangs{free: make(chan struct{})}
		l, err := lockcore.NewMemory(lockcore.Options{Observer: o})
		ok(t, err)
		first, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		got := make(chan *lockcore.Lease)
		go func() {
			le, _ := l.Acquire(t.Context(), "k", lockcore.Terms{})
			got <- le
		}()
		synctest.Wait()
		ok(t, first.Release(t.Context()))
		second := <-got
		if second.Token() != first.Token()+1 {
			t.Fatalf("inconclusive: tokens %d and %d, the key was not handed off", first.Token(), second.Token())
		}
		o.on.Store(true)
		time.Sleep(time.Second) // the new holder is published after 250 ms
		ok(t, second.Release(t.Context()))
		start := time.Now()
		if err := l.Close(t.Context()); err != nil || time.Since(start) > 0 {
			t.Errorf("Close: %v after %v, want at once", err, time.Since(start))
		}
		close(o.free)
	})
}

// badValue is a ctx whose Value panics once, the next time that lockcore reads the task.
type badValue struct {
	context.Context //nolint:containedctx // badValue is a ctx itself
	on              *atomic.Bool
}

func (b badValue) Value(key any) any {
	if fmt.Sprintf("%T", key) == "lockcore.taskKey" && b.on.CompareAndSwap(true, false) {
		panic("of the ctx")
	}
	return b.Context.Value(key)
}

// The ctx of the next waiter panics inside Release of the holder. The panic reaches the caller of
// Release, and the waiters continue.
func TestReleaseNextPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memoryLocker(t, lockcore.Options{})
		held, err := l.Acquire(t.Context(), "k", noWait)
		ok(t, err)
		time.Sleep(20 * time.Millisecond) // the batch has ended
		bad := badValue{t.Context(), new(atomic.Bool)}
		next := make(chan error)
		go func() {
			le, err := l.Acquire(bad, "k", lockcore.Terms{Wait: time.Minute})
			if err == nil {
				err = le.Release(t.Context())
			}
			next <- err
		}()
		synctest.Wait()
		bad.on.Store(true)
		func() {
			defer func() {
				if recover() == nil {
					t.Error("inconclusive: no panic")
				}
			}()
			_ = held.Release(t.Context())
		}()
		ok(t, <-next)
		last, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		ok(t, last.Release(t.Context()))
	})
}
