package lockcore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The tests of this file repeat mistakes of other libraries in messages and subscriptions.

// through returns a Locker whose connections are changed by wrap.
func (p *peerPair) through(wrap func(net.Conn) net.Conn) *lockcore.Locker {
	p.T.Helper()
	rdb := p.Memory.Client(p.T, func(o *redis.Options) {
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return wrap(c), nil
		}
	})
	l, err := lockcore.New(rdb, lockcore.Options{NoGroups: true})
	if err != nil {
		p.T.Fatal(err)
	}
	p.T.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// slow is a connection whose reply to the acquire of one key waits for open.
type slow struct {
	net.Conn
	armed atomic.Bool
	open  <-chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("{slow}:q")) {
		s.armed.Store(true)
	}
	return s.Conn.Write(b)
}

func (s *slow) Read(b []byte) (int, error) {
	if s.armed.Load() {
		<-s.open
	}
	return s.Conn.Read(b)
}

// Redisson 3.28.0, #3891 and #5070: unlock messages are missed. Here a notification that arrives
// between the busy reply and its reading is not missed.
// Shows: I6
func TestPeer_redissonMessageBeforeTheReply(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		open := make(chan struct{})
		l := p.through(func(c net.Conn) net.Conn { return &slow{Conn: c, open: open} })
		first := p.Must(p.b.Acquire(t.Context(), "warm", lockcore.Terms{}))
		warm := p.take(l, "warm", time.Minute) // the Locker is subscribed after this
		time.Sleep(time.Second)
		_ = first.Release(t.Context())
		<-warm
		le := p.Must(p.b.Acquire(t.Context(), "slow", lockcore.Terms{}))
		got := p.take(l, "slow", time.Minute)
		time.Sleep(100 * time.Millisecond)
		if h, _ := p.b.Inspect(t.Context(), event.KindExclusive, "slow"); h.Queue != 1 {
			t.Errorf("inconclusive: %d requests in the queue", h.Queue)
		}
		released := time.Now()
		_ = le.Release(t.Context())
		time.Sleep(100 * time.Millisecond)
		close(open)
		if d := (<-got).Sub(released); d < 100*time.Millisecond || d > 200*time.Millisecond {
			t.Errorf("acquired after %v, want 100 ms, when the reply arrives", d)
		}
	})
}

// deaf is a connection that loses each message of a subscription, and nothing else.
type deaf struct{ net.Conn }

func (d deaf) Read(b []byte) (int, error) {
	for {
		n, err := d.Conn.Read(b)
		if err != nil || !bytes.Contains(b[:n], []byte("\nmessage\r")) {
			return n, err
		}
	}
}

// rueidislock v1.0.79, measured with the settings of its README: after one lost message all waiters
// wait for a free key until their time ends. Here a waiter gets the key within 2.5 s.
// Shows: I6
func TestPeer_rueidislockLostMessage(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		l := p.through(func(c net.Conn) net.Conn { return deaf{c} })
		for _, after := range []time.Duration{time.Second, 1500 * time.Millisecond, 4 * time.Second, 17 * time.Second} {
			le := p.Must(p.b.Acquire(t.Context(), "k", lockcore.Terms{}))
			got := p.take(l, "k", time.Minute)
			time.Sleep(after)
			released := time.Now()
			_ = le.Release(t.Context())
			if d := (<-got).Sub(released); d > 2500*time.Millisecond {
				t.Errorf("acquired after %v", d)
			} else if d == 0 {
				t.Error("inconclusive: no message was lost")
			}
		}
	})
}

// Redisson 3.15.5 and its "Subscribe timeout" (#1847 and nine more): each lock has a subscription,
// and there are too few of them. Here a Locker has one subscription for all keys.
func TestPeer_redissonSubscriptionPerLock(t *testing.T) {
	testlevel.Full(t)
	peers(t, func(t *testing.T, p *peerPair) {
		const keys = 300
		var held []*lockcore.Lease
		var got []<-chan time.Time
		for i := range keys {
			held = append(held, p.Must(p.b.Acquire(t.Context(), fmt.Sprint(i), lockcore.Terms{})))
		}
		for i := range keys {
			got = append(got, p.take(p.a, fmt.Sprint(i), time.Minute))
		}
		time.Sleep(10 * time.Second)
		released := time.Now()
		for _, le := range held {
			_ = le.Release(t.Context())
		}
		for i := range keys {
			if d := (<-got[i]).Sub(released); d > 100*time.Millisecond {
				t.Fatalf("key %d was acquired after %v", i, d)
			}
		}
		if n := p.sent.Count("subscribe"); n != 1 {
			t.Errorf("%d subscriptions for %d keys", n, keys)
		}
	})
}

// rueidis #604: the watcher of an event is removed while a waiter needs it. Here a waiter ends, and
// the subscription stays open for another one.
// Shows: I6
func TestPeer_rueidisUnsubscribedTooEarly(t *testing.T) {
	peers(t, func(t *testing.T, p *peerPair) {
		x := p.Must(p.b.Acquire(t.Context(), "x", lockcore.Terms{}))
		y := p.Must(p.b.Acquire(t.Context(), "y", lockcore.Terms{}))
		got := p.take(p.a, "y", time.Minute)
		time.Sleep(4500 * time.Millisecond) // the waiter for y has just sent its request again
		if _, err := p.a.Acquire(t.Context(), "x", lockcore.Terms{Wait: 100 * time.Millisecond}); !errors.Is(err, lockcore.ErrBusy) {
			t.Error(err)
		}
		time.Sleep(50 * time.Millisecond)
		released := time.Now()
		_ = y.Release(t.Context())
		if d := (<-got).Sub(released); d > 100*time.Millisecond {
			t.Errorf("acquired after %v", d)
		}
		_ = x.Release(t.Context())
	})
}
