package lockcore_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/lockcore"
)

// breaker is a circuit breaker of a program that is open. asked is how often a client asked it.
type breaker struct{ asked atomic.Int64 }

func (b *breaker) Allow() error {
	b.asked.Add(1)
	return errors.New("the breaker is open")
}

func (b *breaker) ReportResult(error) { b.asked.Add(1) }

// The Limiter of a client does not limit the Locker: a lease outlives an open circuit breaker of
// the program, and the breaker does not see the commands of the Locker.
func TestLimiter(t *testing.T) {
	for name, client := range map[string]func(*redis.Options, *breaker) redis.UniversalClient{
		"single": func(o *redis.Options, b *breaker) redis.UniversalClient {
			o.Limiter = b
			return redis.NewClient(o)
		},
		"node": func(o *redis.Options, b *breaker) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{
				Addrs: []string{o.Addr}, Dialer: o.Dialer, NewClient: oneNode(func(node *redis.Options) *redis.Client {
					node.Limiter = b
					return redis.NewClient(node)
				}),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, b := newWorld(t), new(breaker)
				l := lockerOn(t, client(w.dial(), b), lockcore.Options{})
				le := w.must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: 5 * time.Second}))
				time.Sleep(time.Minute)
				if err := le.Context().Err(); err != nil {
					t.Errorf("the lease has ended: %v", context.Cause(le.Context()))
				}
				ok(t, le.Release(t.Context()))
				if n := b.asked.Load(); n > 0 {
					t.Errorf("the Locker called the Limiter %d times", n)
				}
			})
		})
	}
}

// countsHook is a hook of a program, like that of a tracer or a tunnel.
type countsHook struct{ dials, commands *atomic.Int64 }

func (h countsHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h.dials.Add(1)
		return next(ctx, network, addr)
	}
}

func (h countsHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.commands.Add(1)
		return next(ctx, cmd)
	}
}

func (h countsHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.commands.Add(1)
		return next(ctx, cmds)
	}
}

// The Locker's own clients dial by the Dialer of the options, not by the hooks of the client. Hooks
// that NewClient adds to the nodes of a Cluster see the Locker's commands.
func TestHooksOfTheClient(t *testing.T) {
	t.Parallel()
	w := realWorld(t)
	var dialed atomic.Int64
	o := w.dial()
	dial := redis.NewDialer(o)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed.Add(1)
		return dial(ctx, network, addr)
	}
	hook := countsHook{new(atomic.Int64), new(atomic.Int64)}
	for name, c := range map[string]struct {
		client func() redis.UniversalClient
		seen   bool
	}{
		"single": {client: func() redis.UniversalClient {
			rdb := redis.NewClient(o)
			rdb.AddHook(hook)
			return rdb
		}},
		"cluster": {client: func() redis.UniversalClient {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, Dialer: o.Dialer, NewClient: oneNode(nil)})
			rdb.AddHook(hook)
			rdb.OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
			return rdb
		}},
		"nodes": {seen: true, client: func() redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, Dialer: o.Dialer, NewClient: oneNode(func(node *redis.Options) *redis.Client {
				rdb := redis.NewClient(node)
				rdb.AddHook(hook)
				return rdb
			})})
		}},
	} {
		before := dialed.Load()
		l := lockerOn(t, c.client(), lockcore.Options{})
		le, err := l.Acquire(t.Context(), name, lockcore.Terms{})
		ok(t, err)
		ok(t, le.Release(t.Context()))
		if dialed.Load() == before {
			t.Errorf("%s: the Dialer was not called", name)
		}
		dials, commands := hook.dials.Swap(0), hook.commands.Swap(0)
		if c.seen != (dials > 0) || c.seen != (commands > 0) {
			t.Errorf("%s: the hook saw %d dials and %d commands", name, dials, commands)
		}
	}
}
