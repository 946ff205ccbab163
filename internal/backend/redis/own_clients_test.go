package redis_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testlevel"
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
				l := lockerOn(t, client(w.Options(), b), lockcore.Options{})
				le := w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{Lease: 5 * time.Second}))
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
	o := w.Options()
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

// Handlers block each connection of the pool of the user for longer than two leases. The Locker
// renews its lease of 3 s and serves other keys.
// Shows: L11
func TestRealBlockedPool(t *testing.T) {
	testlevel.Full(t)
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t, func(o *redis.Options) { o.PoolSize = 2 })
	l, err := lockcore.New(rdb, lockcore.Options{Terms: lockcore.Terms{Lease: 3 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close(context.Background())
	le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	blocked := make(chan error, 2)
	for range 2 {
		go func() { blocked <- rdb.BLPop(t.Context(), time.Minute, "work").Err() }()
	}
	for end := time.Now().Add(6500 * time.Millisecond); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		other, err := l.Acquire(t.Context(), "second", lockcore.Terms{Wait: time.Minute})
		if err != nil {
			t.Fatalf("another key while the pool is blocked: %v", err)
		}
		if err := other.Release(t.Context()); err != nil {
			t.Fatalf("release of another key: %v", err)
		}
	}
	select {
	case err := <-blocked:
		t.Errorf("inconclusive: a connection was not blocked: %v", err)
	default:
	}
	if err := s.Client(t).RPush(t.Context(), "work", 1, 2).Err(); err != nil { // ends BLPOP, so that the test does not wait for its timeout
		t.Error(err)
	}
	for range 2 {
		if err := <-blocked; err != nil {
			t.Errorf("BLPOP: %v", err)
		}
	}
	if err := le.Context().Err(); err != nil {
		t.Errorf("the lease is lost: %v", context.Cause(le.Context()))
	}
	nested, err := l.Acquire(le.Context(), "other", noWait)
	if err != nil {
		t.Errorf("another key: %v", err)
	} else {
		_ = nested.Release(t.Context())
	}
	if err := le.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
