package redis_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
	redisbackend "github.com/holdfast-go/holdfast/internal/backend/redis"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
)

// gated is a Backend whose server can refuse new connections.
type gated struct {
	*redisbackend.Backend
	t       *testing.T
	refuses atomic.Bool
	sent    redistest.Counter
	faults  *faulty.Network
}

func newGated(t *testing.T, m *redistest.Memory) *gated {
	t.Helper()
	t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis checks once a second whether a dead server is back
	g := &gated{t: t, faults: faulty.New(t)}
	rdb := m.Client(t, func(o *redis.Options) {
		dial := g.sent.Dial(g.faults.Dial(o.Dialer))
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if g.refuses.Load() {
				return nil, errors.New("refused") // not a net.OpError, like an error of a TLS handshake
			}
			return dial(ctx, network, addr)
		}
	})
	b, err := redisbackend.New(rdb, redisbackend.Options{Options: backend.Options{Locker: me, Closing: make(chan struct{})}, NoGroups: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	g.Backend = b
	return g
}

func (g *gated) key(name string) *backend.Key {
	k := g.Key(backend.KindExclusive, name)
	return &k
}

func (g *gated) acquire(key string) error {
	r, err := g.Acquire(g.t.Context(), backend.AcquireRequest{
		Key: g.key(key), ID: id(key), Holder: "h", Lease: time.Minute, Retention: time.Minute, First: true, Timeout: time.Second,
	})
	if err == nil && r.Outcome != backend.OutcomeGranted {
		err = fmt.Errorf("outcome %d", r.Outcome)
	}
	return err
}

func (g *gated) renew(key string) error {
	r := g.Renew(g.t.Context(), []backend.RenewRequest{{Key: g.key(key), ID: id(key), Lease: time.Minute, Retention: time.Minute}})[0]
	if r.Err == nil && r.Verdict != backend.VerdictKept {
		return fmt.Errorf("verdict %d", r.Verdict)
	}
	return r.Err
}

// The only open connection is that of renewals. A release and an entry of the cleanup queue use it.
// An acquire does not.
func TestOthersOfCommands(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		m := redistest.Bubble(t)
		holder, g := newGated(t, m), newGated(t, m)
		for _, key := range []string{"A", "B"} {
			if err := errors.Join(holder.acquire(key), g.renew(key)); err != nil {
				t.Fatal(err)
			}
		}
		g.refuses.Store(true)
		if err := g.acquire("C"); err == nil || g.sent.Count("acquire") > 0 {
			t.Errorf("an acquire: %v, sent: %v", err, &g.sent)
		}
		release := func(key string) backend.ReleaseRequest {
			return backend.ReleaseRequest{Key: g.key(key), ID: id(key), Token: 1, Retention: time.Minute}
		}
		if r, err := g.Release(t.Context(), release("A")); err != nil || !r.Released || r.Repeated {
			t.Errorf("a release: %+v, %v", r, err)
		}
		g.ReleaseLater(release("B"), time.Time{})
		g.Drain(t.Context())
		for _, key := range []string{"A", "B"} {
			if status, err := holder.Inspect(t.Context(), holder.key(key), backend.NoRecord); err != nil || status.State != backend.StateFree {
				t.Errorf("%s: state %v, %v", key, status.State, err)
			}
		}
	})
}

// Renewals that use the connections of acquires leave half of them to the acquires.
func TestOthersLeaveHalf(t *testing.T) {
	testlevel.InMemory(t)
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, redistest.Bubble(t))
		const conns, renewals = 16, 40
		together := func(n int, call func(key string) error) (failed *atomic.Int64, all *sync.WaitGroup) {
			failed, all = new(atomic.Int64), new(sync.WaitGroup)
			for i := range n {
				all.Go(func() {
					if call(string(rune('A'+i))) != nil {
						failed.Add(1)
					}
				})
			}
			return failed, all
		}
		g.faults.Delay(time.Millisecond)
		failed, all := together(conns, g.acquire)
		all.Wait()
		g.faults.Delay(0)
		if n := g.faults.Conns(); n != conns || failed.Load() > 0 {
			t.Fatalf("inconclusive: %d connections, %d acquires failed", n, failed.Load())
		}
		g.refuses.Store(true)
		g.faults.SilenceReplies()
		noRenewal, renewing := together(renewals, func(string) error { return g.renew("A") })
		synctest.Wait()
		noAcquire, acquiring := together(conns/2, func(key string) error { return g.acquire(strings.ToLower(key)) })
		synctest.Wait()
		g.faults.Heal()
		renewing.Wait()
		acquiring.Wait()
		if r, a := noRenewal.Load(), noAcquire.Load(); r != renewals-conns/2 || a > 0 {
			t.Errorf("of %d renewals and %d acquires at once on %d connections, %d and %d failed", renewals, conns/2, conns, r, a)
		}
	})
}

// A client whose connections are refused before the first reply sends nothing but HELLO, and its
// call has not been sent.
func TestRefusedConnection(t *testing.T) {
	testlevel.InMemory(t)
	for name, reply := range map[string]string{
		"maxclients":     "-ERR max number of clients reached\r\n",
		"cluster":        "-ERR max number of clients + cluster connections reached\r\n",
		"protected mode": "-DENIED Redis is running in protected mode because of a reason\r\n",
		"no reply":       "",
	} {
		for _, closes := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " ", closes), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { refusedBy(t, reply, closes) })
			})
		}
	}
}

func refusedBy(t *testing.T, reply string, closes bool) {
	t.Helper()
	var sent []string
	o := &redis.Options{
		Addr: "127.0.0.1:1", Password: "p", DB: 1, ClientName: "n",
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() { // ends when the client closes the connection
				in := make([]byte, 4096)
				for n, err := server.Read(in); err == nil; n, err = server.Read(in) {
					sent = append(sent, string(in[:n]))
					if _, err = server.Write([]byte(reply)); err != nil || closes {
						_ = server.Close()
					}
				}
			}()
			return client, nil
		},
	}
	rdb := redis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	b := newBackend(t, rdb)
	k := b.Key(backend.KindExclusive, "k")
	r, err := b.Acquire(t.Context(), backend.AcquireRequest{
		Key: &k, ID: next, Holder: "h", Lease: time.Minute, Retention: time.Minute, First: true, Timeout: time.Second,
	})
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" || r.Repeated || !strings.Contains(err.Error(), strings.TrimSpace(strings.TrimPrefix(reply, "-"))) {
		t.Errorf("%v, a duplicate may arrive: %v", err, r.Repeated)
	}
	synctest.Wait()
	if len(sent) != 1 || !strings.Contains(sent[0], "hello") {
		t.Errorf("sent: %q", sent)
	}
}
