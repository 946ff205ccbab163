package lockcore_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Close returns when its ctx ends, in each state of the client. The client dials for the
// subscription, waits for the reply to a request or a withdrawal, or ignores its ctx.
// Shows: I14
func TestCloseWithinBound(t *testing.T) {
	hang := func(context.Context, string, string) (net.Conn, error) { // like a dial to an address that drops packets
		time.Sleep(5 * time.Second)
		return nil, errors.New("dial timeout")
	}
	for kind, wrap := range map[string]func(*redis.Client) redis.UniversalClient{
		"own":     func(c *redis.Client) redis.UniversalClient { return c },
		"wrapper": func(c *redis.Client) redis.UniversalClient { return inWrapper(c) },
	} {
		for name, scenario := range map[string]func(faults *faulty.Network, cancel func()){
			"waiter":             func(*faulty.Network, func()) {},
			"subscription dials": func(f *faulty.Network, _ func()) { f.Cut(); time.Sleep(time.Second) },
			"withdrawal":         func(_ *faulty.Network, cancel func()) { cancel(); time.Sleep(100 * time.Millisecond) },
			"withdrawal begins":  func(_ *faulty.Network, cancel func()) { cancel() },
		} {
			for _, bound := range []time.Duration{0, 200 * time.Millisecond, time.Second} {
				t.Run(kind+"/"+name+"/"+bound.String(), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w, faults := newWorld(t), faulty.New(t)
						var blackHole sync.Map
						o := w.Options()
						dial := faults.Dial(o.Dialer)
						o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
							if _, ok := blackHole.Load("on"); ok {
								return hang(ctx, network, addr)
							}
							return dial(ctx, network, addr)
						}
						rdb := redis.NewClient(o)
						l, err := lockcore.New(wrap(rdb), lockcore.Options{NoGroups: true})
						if err != nil {
							t.Fatal(err)
						}
						other, _, _ := w.Locker(lockcore.Options{})
						held := w.Must(other.Acquire(t.Context(), "k", lockcore.Terms{}))
						takeOnce(t, l, "warm")
						ctx, cancel := context.WithCancel(t.Context())
						var waiters sync.WaitGroup
						if name == "subscription dials" {
							blackHole.Store("on", true)
						}
						waiters.Go(func() { _, _ = l.Acquire(ctx, "k", lockcore.Terms{Wait: lockcore.Forever}) })
						time.Sleep(1700 * time.Millisecond)
						blackHole.Store("on", true)
						faults.Silence()
						scenario(faults, cancel)
						in, stop := context.WithTimeout(t.Context(), bound)
						defer stop()
						start := time.Now()
						_ = l.Close(in)
						if took := time.Since(start); took > bound {
							t.Errorf("Close took %v, want at most %v", took, bound)
						}
						cancel()
						waiters.Wait()
						time.Sleep(20 * time.Second) // a client of another type still has to end its commands
						_ = rdb.Close()
						time.Sleep(10 * time.Second) // go-redis dials once more
						faults.Heal()
						_ = held.Release(t.Context())
					})
				})
			}
		}
	}
}

// A nil *Lease behaves like a released one, so that a deferred Release before the check of the
// error is harmless.
func TestNilLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		released := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{}))
		_ = released.Release(t.Context())
		nilLease(t, (*lockcore.Lease)(nil))
		_, err := func() (le *lockcore.Lease, err error) {
			le, err = l.Acquire(t.Context(), "", lockcore.Terms{})
			defer le.Release(t.Context()) //nolint:errcheck // before the check of the error, on purpose
			return nil, err
		}()
		if !errors.Is(err, lockcore.ErrKey) {
			t.Error(err)
		}
	})
}
