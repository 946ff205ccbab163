package faulty_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Redis behind a faulty network, in a bubble or on a socket.
type rig struct {
	*testing.T
	ctx    context.Context //nolint:containedctx // of the test
	redis  *miniredis.Miniredis
	faults *faulty.Network
	c      *redis.Client // through faults; repeats no command and reads for 3 s
}

func newNet(t *testing.T, dial func(*miniredis.Miniredis) faulty.Dialer) *rig {
	t.Helper()
	n := &rig{T: t, ctx: t.Context(), redis: miniredis.NewMiniRedis(), faults: faulty.New(t)}
	t.Cleanup(n.redis.Close)
	n.c = redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:1", Dialer: n.faults.Dial(dial(n.redis)), DisableIdentity: true,
		MaxRetries: -1, DialerRetries: 1, DialTimeout: time.Second, ReadTimeout: 3 * time.Second,
	})
	t.Cleanup(func() { _ = n.c.Close() })
	return n
}

// inBubble runs a test on a fake clock.
func inBubble(t *testing.T, test func(n *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(newNet(t, func(m *miniredis.Miniredis) faulty.Dialer {
			return func(context.Context, string, string) (net.Conn, error) { return m.Dial() }
		}))
	})
}

// onSocket runs a test on real connections.
func onSocket(t *testing.T, test func(n *rig)) {
	t.Helper()
	test(newNet(t, func(m *miniredis.Miniredis) faulty.Dialer {
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, m.Addr())
		}
	}))
}

func both(t *testing.T, test func(n *rig)) {
	t.Helper()
	t.Run("bubble", func(t *testing.T) { inBubble(t, test) })
	t.Run("socket", func(t *testing.T) { onSocket(t, test) })
}

func (n *rig) set(key string) error { return n.c.Set(n.ctx, key, "v", 0).Err() }

func (n *rig) must(err error) {
	n.Helper()
	if err != nil {
		n.Fatal(err)
	}
}

// wantTimeout asserts that the client received nothing.
func (n *rig) wantTimeout(err error) {
	n.Helper()
	if !os.IsTimeout(err) {
		n.Errorf("error is %v, want a timeout", err)
	}
}

// wantKey asserts whether Redis has the key.
func (n *rig) wantKey(key string, want bool) {
	n.Helper()
	if got := n.redis.Exists(key); got != want {
		n.Errorf("%s exists: %t, want %t", key, got, want)
	}
}

// Without a fault everything passes unchanged: commands, pipelines, large values, messages.
func TestNetworkPass(t *testing.T) {
	both(t, func(n *rig) {
		big := strings.Repeat("\r\n*$", 1<<17)
		n.must(n.c.Set(n.ctx, "big", big, 0).Err())
		if got, err := n.c.Get(n.ctx, "big").Result(); got != big || err != nil {
			n.Errorf("a large value came back with %d bytes, %v", len(got), err)
		}
		p := n.c.Pipeline()
		for range 100 {
			p.Incr(n.ctx, "n")
		}
		done, err := p.Exec(n.ctx)
		n.must(err)
		if got := done[99].String(); got != "incr n: 100" {
			n.Errorf("the 100th of a pipeline: %q", got)
		}
		sub := n.c.Subscribe(n.ctx, "c")
		defer func() { _ = sub.Close() }()
		_, err = sub.Receive(n.ctx)
		n.must(err)
		n.must(n.c.Publish(n.ctx, "c", "hello").Err())
		if m, err := sub.ReceiveMessage(n.ctx); err != nil || m.Payload != "hello" {
			n.Errorf("message %v, %v", m, err)
		}
	})
}

// In silence Redis receives nothing, the client reads until its own deadline, and dials hang until
// theirs.
func TestNetworkSilence(t *testing.T) {
	inBubble(t, func(n *rig) {
		n.must(n.set("before"))
		n.faults.Silence()
		begin := time.Now()
		n.wantTimeout(n.set("lost"))
		if took := time.Since(begin); took != 3*time.Second {
			n.Errorf("the client read for %v, want its own 3s", took)
		}
		begin = time.Now()
		n.wantTimeout(n.set("undialed")) // the client has closed the connection
		if took := time.Since(begin); took != time.Second {
			n.Errorf("the client dialed for %v, want its own 1s", took)
		}
		n.faults.Heal()
		n.must(n.set("after"))
		n.wantKey("lost", false)
		n.wantKey("undialed", false)
	})
}

// Data that was sent during a short silence arrives late, because TCP sends it again.
func TestNetworkSilenceShort(t *testing.T) {
	inBubble(t, func(n *rig) {
		n.must(n.set("before"))
		n.faults.Silence()
		time.AfterFunc(2*time.Second, n.faults.Heal)
		n.must(n.set("k"))
		n.wantKey("k", true)
	})
}

// A dial that hangs in a silence succeeds when the silence ends.
func TestNetworkSilenceDial(t *testing.T) {
	inBubble(t, func(n *rig) {
		n.faults.Silence()
		time.AfterFunc(time.Second/2, n.faults.Heal)
		n.must(n.set("k"))
	})
}

// In a half-open network Redis executes requests and the client gets no reply. A subscriber gets no
// message.
func TestNetworkSilenceReplies(t *testing.T) {
	inBubble(t, func(n *rig) {
		sub := n.c.Subscribe(n.ctx, "c")
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(n.ctx)
		n.must(err)
		n.must(n.set("before"))
		n.faults.SilenceReplies()
		n.wantTimeout(n.set("k"))
		n.wantKey("k", true)
		n.redis.Publish("c", "hello")
		_, err = sub.ReceiveTimeout(n.ctx, time.Minute)
		n.wantTimeout(err)
		n.faults.Heal()
		if m, err := sub.ReceiveMessage(n.ctx); err != nil || m.Payload != "hello" {
			n.Errorf("after the silence: message %v, %v", m, err)
		}
	})
}

// A cut ends every connection, also during a read. New connections are possible at once.
func TestNetworkCut(t *testing.T) {
	both(t, func(n *rig) {
		sub := n.c.Subscribe(n.ctx, "c")
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(n.ctx)
		n.must(err)
		n.must(n.set("before"))
		if got := n.faults.Conns(); got != 2 {
			n.Errorf("%d connections, want 2", got)
		}
		ended := make(chan error)
		go func() {
			_, err := sub.Receive(n.ctx)
			ended <- err
		}()
		n.faults.Cut()
		if got := n.faults.Conns(); got > 1 { // the reader may have a new one already
			n.Errorf("%d connections after the cut", got)
		}
		if err := <-ended; !errors.Is(err, io.EOF) {
			n.Errorf("an open read ends with %v, want EOF", err)
		}
		if err := n.set("k"); !errors.Is(err, io.EOF) {
			n.Errorf("a cut connection returns %v, want EOF", err)
		}
		n.wantKey("k", false)
		n.must(n.set("k"))
	})
}

// Down refuses until Heal.
func TestNetworkDown(t *testing.T) {
	both(t, func(n *rig) {
		n.must(n.set("before"))
		n.faults.Down()
		if err := n.set("k"); !errors.Is(err, io.EOF) {
			n.Errorf("a cut connection returns %v, want EOF", err)
		}
		if err := n.set("k"); err == nil || os.IsTimeout(err) {
			n.Errorf("a dial returns %v, want a refusal", err)
		}
		n.faults.Heal()
		n.must(n.set("k"))
	})
}

// A delay applies in each direction, keeps the order, and applies once to a whole pipeline.
func TestNetworkDelay(t *testing.T) {
	inBubble(t, func(n *rig) {
		pipeline := func() {
			_, err := n.c.Pipelined(n.ctx, func(p redis.Pipeliner) error {
				for range 10 {
					p.Incr(n.ctx, "n")
				}
				return nil
			})
			n.must(err)
		}
		pipeline() // go-redis opens a separate connection for it
		n.faults.Delay(200 * time.Millisecond)
		begin := time.Now()
		pipeline()
		if took := time.Since(begin); took != 400*time.Millisecond {
			n.Errorf("a pipeline took %v, want 400ms", took)
		}
		n.faults.DelayFunc(nil)
		n.must(n.set("k"))
		begin = time.Now()
		n.must(n.set("k"))
		if took := time.Since(begin); took != 0 {
			n.Errorf("without a delay it took %v", took)
		}
	})
}

// A request arrives although its client gave up after sending it.
func TestNetworkDelayed(t *testing.T) {
	inBubble(t, func(n *rig) {
		n.must(n.set("before"))
		n.faults.Delay(4 * time.Second)
		n.wantTimeout(n.set("late"))
		n.wantKey("late", false)
		time.Sleep(time.Second)
		synctest.Wait()
		n.wantKey("late", true)
	})
}

// Deadlines work as on a socket: they end a read that has begun, and a new deadline replaces the
// old one.
func TestNetworkDeadline(t *testing.T) {
	inBubble(t, func(n *rig) {
		dial := n.faults.Dial(func(context.Context, string, string) (net.Conn, error) { return n.redis.Dial() })
		c, err := dial(n.ctx, "tcp", "")
		n.must(err)
		begin, b := time.Now(), make([]byte, 10)
		time.AfterFunc(time.Second, func() { _ = c.SetDeadline(time.Now().Add(time.Second)) })
		n.must(c.SetReadDeadline(begin.Add(time.Hour)))
		_, err = c.Read(b)
		n.wantTimeout(err)
		if took := time.Since(begin); took != 2*time.Second {
			n.Errorf("the read took %v, want 2s", took)
		}
		_, err = c.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		n.wantTimeout(err)
		_, err = c.Read(b)
		n.wantTimeout(err)
		n.must(c.SetDeadline(time.Time{}))
		_, err = c.Write([]byte("*1\r\n$4\r\nPING\r\n"))
		n.must(err)
		got, err := io.ReadFull(c, b[:7])
		n.must(err)
		if string(b[:got]) != "+PONG\r\n" {
			n.Errorf("read %q", b[:got])
		}
		n.must(c.SetWriteDeadline(time.Now().Add(-1)))
		_, err = c.Write([]byte("x"))
		n.wantTimeout(err)
		time.AfterFunc(time.Second, func() { _ = c.Close() })
		if _, err = c.Read(b); !errors.Is(err, net.ErrClosed) {
			n.Errorf("a read of a closed connection: %v", err)
		}
		if err := c.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
			n.Errorf("a deadline of a closed connection: %v", err)
		}
	})
}

// When Redis closes the connection, the client reads the data that was sent before, and then the
// end.
func TestNetworkServerGone(t *testing.T) {
	both(t, func(n *rig) {
		n.must(n.set("before"))
		n.redis.Close()
		if err := n.set("k"); !errors.Is(err, io.EOF) {
			n.Errorf("error is %v, want EOF", err)
		}
	})
}
