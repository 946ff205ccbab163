package redis_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// away returns a Locker behind one kind of client, the faults of its connections, and the Redis
// itself.
func away(t *testing.T, wrapped bool, edit ...func(*redis.Options)) (*lockcore.Locker, *faulty.Network, *redistest.Memory) {
	t.Helper()
	m, faults := redistest.Bubble(t), faulty.New(t)
	o := m.Options()
	o.Dialer = faults.Dial(o.Dialer)
	o.PoolSize = 1000 // a call that waits for a connection uses a timer that go-redis would use again in the next bubble
	for _, e := range edit {
		e(o)
	}
	var rdb redis.UniversalClient = redis.NewClient(o)
	if wrapped {
		rdb = inWrapper(rdb)
	}
	t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis checks once a second whether a pool that failed is closed
	l := lockerOn(t, rdb, lockcore.Options{})
	t.Cleanup(faults.Heal)
	return l, faults, m
}

// calls are the calls that send a command to Redis and fail if it is unavailable.
var calls = map[string]func(context.Context, *lockcore.Locker, lockcore.Terms) error{
	"Acquire": func(ctx context.Context, l *lockcore.Locker, t lockcore.Terms) error {
		le, err := l.Acquire(ctx, "k", t)
		if le != nil {
			return errors.Join(errors.New("granted"), le.Release(ctx))
		}
		return err
	},
	"Claim": func(ctx context.Context, l *lockcore.Locker, t lockcore.Terms) error {
		le, rec, err := l.Claim(ctx, "k", lockcore.Claim{Terms: t})
		if le != nil {
			return errors.Join(errors.New("granted"), le.Release(ctx))
		}
		if rec != nil {
			return errors.New("replayed")
		}
		return err
	},
	"Inspect": func(ctx context.Context, l *lockcore.Locker, _ lockcore.Terms) error {
		_, err := l.Inspect(ctx, event.KindOnce, "k")
		return err
	},
	"Revoke": func(ctx context.Context, l *lockcore.Locker, _ lockcore.Terms) error {
		return l.Revoke(ctx, event.KindOnce, "k")
	},
	"Clear": func(ctx context.Context, l *lockcore.Locker, _ lockcore.Terms) error {
		return l.Clear(ctx, event.KindOnce, "k")
	},
}

// Redis is unavailable. Each call returns ErrUnavailable by the deadline of its ctx, also on a
// client that ignores ctx.
// Shows: I12
func TestConnAway(t *testing.T) {
	ways := map[string]func(*faulty.Network){
		"refused": (*faulty.Network).Down, "black hole": (*faulty.Network).Silence, "replies lost": (*faulty.Network).SilenceReplies,
	}
	for way, goAway := range ways {
		for kind, wrapped := range map[string]bool{"own": false, "wrapper": true} {
			for warmth, warm := range map[string]bool{"warm": true, "cold": false} {
				t.Run(way+"/"+kind+"/"+warmth, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l, faults, _ := away(t, wrapped)
						if warm {
							le, err := l.Acquire(t.Context(), "warm", noWait)
							if err != nil {
								t.Fatal(err)
							}
							_ = le.Release(t.Context())
						}
						goAway(faults)
						for name, call := range calls {
							deadlines(t, name, func(ctx context.Context, terms lockcore.Terms) error { return call(ctx, l, terms) })
						}
					})
				})
			}
		}
	}
}

func deadlines(t *testing.T, name string, call func(context.Context, lockcore.Terms) error) {
	t.Helper()
	for _, test := range []struct {
		ctx  time.Duration // time until its deadline; 0: it has none
		wait time.Duration
		most time.Duration
	}{
		{ctx: 50 * time.Millisecond, wait: lockcore.Forever, most: 50 * time.Millisecond},
		{ctx: 300 * time.Millisecond, wait: time.Minute, most: 300 * time.Millisecond},
		{ctx: 5 * time.Second, wait: lockcore.Forever, most: 5 * time.Second},
		{wait: lockcore.NoWait, most: 2500 * time.Millisecond}, // the call sends its request three times, because a single failure may be accidental
		{wait: 3 * time.Second, most: 3500 * time.Millisecond},
	} {
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if test.ctx > 0 {
			ctx, cancel = context.WithTimeout(ctx, test.ctx)
		}
		start := time.Now()
		err := call(ctx, lockcore.Terms{Wait: test.wait})
		cancel()
		if d := time.Since(start); d > test.most {
			t.Errorf("%s with %+v took %v", name, test, d)
		}
		if !errors.Is(err, lockcore.ErrUnavailable) || !errors.Is(err, lockcore.ErrNotRun) {
			t.Errorf("%s with %+v: %v, want ErrUnavailable", name, test, err)
		}
	}
}

// Redis becomes unavailable while a key is held. The ctx of the hold ends in time, Release does not
// hang, and the Locker can be closed.
func TestConnAwayWhileHeld(t *testing.T) {
	for kind, wrapped := range map[string]bool{"own": false, "wrapper": true} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, faults, m := away(t, wrapped)
				le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				faults.Silence()
				start := time.Now()
				if err := le.Extend(t.Context(), time.Hour); !errors.Is(err, lockcore.ErrUnavailable) || time.Since(start) > time.Second {
					t.Errorf("Extend: %v after %v", err, time.Since(start))
				}
				<-le.Context().Done()
				fields, err := redistest.Fields(t.Context(), m.Client(t), storedNames(event.KindExclusive, "k")[0])
				ok(t, err)
				if end, _ := strconv.ParseInt(fields["x"], 10, 64); (time.Until(time.UnixMicro(end))-3500*time.Millisecond).Abs() > 5*time.Second || time.Since(start) > 27*time.Second {
					t.Errorf("the ctx ended after %v; the lease ends at %d µs, now it is %d", time.Since(start), end, time.Now().UnixMicro())
				}
				start = time.Now()
				if err := le.Release(t.Context()); !errors.Is(err, lockcore.ErrLost) || time.Since(start) > time.Second {
					t.Errorf("Release: %v after %v", err, time.Since(start))
				}
				start = time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := l.Close(ctx); err != nil || time.Since(start) > 5*time.Second {
					t.Errorf("Close: %v after %v", err, time.Since(start))
				}
			})
		})
	}
}

// A listener on a real socket accepts connections and never replies. The client has the timeouts of
// go-redis. Each call returns ErrUnavailable by its deadline.
func TestConnDeafListener(t *testing.T) {
	testlevel.Full(t)
	deaf, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			c, err := deaf.Accept()
			if err != nil {
				return
			}
			accepting.Go(func() { // ends when the client closes its side
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = deaf.Close()
		accepting.Wait()
	})
	control := redistest.NewControl(t)
	for kind, wrap := range map[string]func(*redis.Client) redis.UniversalClient{
		"own":     func(c *redis.Client) redis.UniversalClient { return c },
		"wrapper": func(c *redis.Client) redis.UniversalClient { return inWrapper(c) },
	} {
		t.Run(kind, func(t *testing.T) {
			l := lockerOn(t, wrap(redis.NewClient(&redis.Options{Addr: deaf.Addr().String()})), lockcore.Options{})
			var all sync.WaitGroup
			for name, call := range calls {
				all.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
					defer cancel()
					start := time.Now()
					err := call(ctx, l, lockcore.Terms{Wait: lockcore.Forever})
					if d := time.Since(start); d > time.Second+control.Late(start) || !errors.Is(err, lockcore.ErrUnavailable) {
						t.Errorf("%s: %v after %v", name, err, d)
					}
				})
			}
			all.Wait()
		})
	}
}

// The TLS handshake with the server hangs. A call does not wait for it, although the dialer of
// go-redis limits it only by the DialTimeout of the user.
func TestConnDeafTLS(t *testing.T) {
	testlevel.Full(t)
	deaf, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0") // the kernel accepts connections; no process reads from them
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = deaf.Close() }()
	control := redistest.NewControl(t)
	rdb := redis.NewClient(&redis.Options{Addr: deaf.Addr().String(), DialTimeout: time.Minute, TLSConfig: &tls.Config{ServerName: "redis", MinVersion: tls.VersionTLS12}})
	l := lockerOn(t, rdb, lockcore.Options{})
	start := time.Now()
	_, err = l.Acquire(t.Context(), "k", noWait)
	if d := time.Since(start); d > 2500*time.Millisecond+control.Late(start) || !errors.Is(err, lockcore.ErrUnavailable) {
		t.Errorf("%v after %v", err, d)
	}
}

// The dialer of the user ignores its ctx, so dials continue after their calls return. At most 256
// of them to one address continue. When they end, calls succeed again.
func TestConnDialsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, pool, rounds = 3, 16, 100
		var under, most atomic.Int64
		answer := make(chan struct{})
		o := redistest.Bubble(t).Options()
		dial := o.Dialer
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			n := under.Add(1)
			defer under.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			<-answer
			return dial(context.WithoutCancel(ctx), network, addr)
		}
		l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
		for range rounds {
			var calls sync.WaitGroup
			for i := range pool {
				calls.Go(func() {
					if _, err := l.Acquire(t.Context(), fmt.Sprint(i), noWait); !errors.Is(err, lockcore.ErrUnavailable) {
						t.Error(err)
					}
				})
			}
			calls.Wait()
		}
		if n := most.Load(); n < 256 || n > 256+clients*pool {
			t.Errorf("%d dials at the same time in %d calls", n, rounds*pool)
		}
		go func() {
			time.Sleep(time.Second)
			close(answer)
		}()
		le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: 10 * time.Second})
		if err != nil {
			t.Fatalf("after the dials have returned: %v", err)
		}
		if err := le.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// No dial to the server ends. Calls return in time, also if the client of the user dials one
// connection at a time.
func TestConnDialsOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis checks once a second whether the server replies again
		o := redistest.Bubble(t).Options()
		o.PoolSize, o.MaxConcurrentDials = 1000, 1 // as in away
		o.Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
		start := time.Now()
		var calls sync.WaitGroup
		for i := range 16 {
			calls.Go(func() {
				if _, err := l.Acquire(t.Context(), fmt.Sprint(i), noWait); !errors.Is(err, lockcore.ErrUnavailable) {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("the last call took %v", d)
		}
	})
}

// A callback of the user sets a timeout on its ctx. The timeout works, although the ctx of a
// command has a deadline without a timer.
func TestConnUserCodeTimesOut(t *testing.T) {
	for name, set := range map[string]func(o *redis.Options, hang func(context.Context) error){
		"CredentialsProviderContext": func(o *redis.Options, hang func(context.Context) error) {
			o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) { return "", "", hang(ctx) }
		},
		"OnConnect": func(o *redis.Options, hang func(context.Context) error) {
			o.OnConnect = func(ctx context.Context, _ *redis.Conn) error { return hang(ctx) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(func() { time.Sleep(2 * time.Second) }) // as above
				o := redistest.Bubble(t).Options()
				set(o, func(ctx context.Context) error {
					ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
					defer cancel()
					<-ctx.Done()
					return ctx.Err()
				})
				l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
				start := time.Now()
				_, err := l.Acquire(t.Context(), "k", noWait)
				if d := time.Since(start); !errors.Is(err, lockcore.ErrUnavailable) || d > 5*time.Second {
					t.Errorf("%v after %v", err, d)
				}
			})
		})
	}
}

// Groups of commands wait for connections on which OnConnect of the user hangs. Close returns when
// its ctx ends.
func TestCloseHangingOnConnect(t *testing.T) {
	testlevel.Full(t)
	var hangs atomic.Bool
	var hanging atomic.Int64
	end := make(chan struct{})
	o := redistest.Real(t).Options()
	o.OnConnect = func(context.Context, *redis.Conn) error {
		if hangs.Load() {
			hanging.Add(1)
			<-end
		}
		return nil
	}
	rdb := redis.NewClient(o)
	defer func() { _ = rdb.Close() }()
	l, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	takeOnce(t, l, "warm")
	hangs.Store(true)
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			if le, err := l.Acquire(t.Context(), fmt.Sprint(i), noWait); err == nil { // over the connection that is already open
				_ = le.Release(t.Context())
			}
		})
	}
	eventually(t, "connections on which OnConnect hangs", func() bool { return hanging.Load() >= 2 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	control, start := redistest.NewControl(t), time.Now()
	_ = l.Close(ctx)
	if d := time.Since(start); d > time.Second+control.Late(start) {
		t.Errorf("Close took %v", d)
	}
	close(end)
	calls.Wait()
	_ = l.Close(t.Context()) // completes the first Close
}

// stalls is a connection whose next Write sleeps for the given time and then times out.
type stalls struct {
	net.Conn
	next *atomic.Int64
}

func (s stalls) Write(b []byte) (int, error) {
	if d := time.Duration(s.next.Swap(0)); d > 0 {
		time.Sleep(d)
		return 0, os.ErrDeadlineExceeded
	}
	return s.Conn.Write(b)
}

// The process was stopped during the first request of a call, so that request timed out. The call
// sends another one.
func TestConnStandstill(t *testing.T) {
	for _, wait := range []time.Duration{lockcore.NoWait, 20 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var next atomic.Int64
			o := redistest.Bubble(t).Options()
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := dial(ctx, network, addr)
				return stalls{c, &next}, err
			}
			l := lockerOn(t, redis.NewClient(o), lockcore.Options{})
			takeOnce(t, l, "warm")
			next.Store(int64(5 * time.Second))
			le, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: wait})
			if err != nil {
				t.Fatalf("with Wait %v: %v", wait, err)
			}
			if err := le.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// stuck is a client whose commands do not return before release is closed, and ignore ctx.
type stuck struct {
	redis.UniversalClient
	inside  atomic.Int64
	most    atomic.Int64
	release chan struct{}
}

func (s *stuck) EvalSha(_ context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	n := s.inside.Add(1)
	defer s.inside.Add(-1)
	for old := s.most.Load(); n > old && !s.most.CompareAndSwap(old, n); old = s.most.Load() {
		continue
	}
	<-s.release
	return s.UniversalClient.EvalSha(context.Background(), sha, keys, args...)
}

// Calls hang in a client, and continue after their callers return. While 256 of them or more hang,
// further calls are refused at once. When they have returned, calls succeed again.
func TestConnHeldUp(t *testing.T) {
	const limit = 256
	for name, callers := range map[string]int{"one by one": 1, "at once": 400} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := redistest.Bubble(t)
				o := m.Options()
				o.PoolSize = 1000 // as in away
				s := &stuck{UniversalClient: redis.NewClient(o), release: make(chan struct{})}
				l := lockerOn(t, s, lockcore.Options{})
				try := func() time.Duration {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					start := time.Now()
					_, err := l.Inspect(ctx, event.KindOnce, "k")
					if d := time.Since(start); !errors.Is(err, lockcore.ErrUnavailable) || d != 0 && d != 100*time.Millisecond {
						t.Errorf("%v after %v", err, d)
					}
					return time.Since(start)
				}
				var slow atomic.Int64
				for range 3*limit/callers + 1 {
					var all sync.WaitGroup
					for range callers {
						all.Go(func() {
							if try() > 0 {
								slow.Add(1)
							}
						})
					}
					all.Wait()
				}
				if n, most := slow.Load(), int64(max(limit, callers)); n != most || s.most.Load() != most {
					t.Errorf("%d calls hung, %d at the same time; want %d", n, s.most.Load(), most)
				}
				if _, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.Forever}); !errors.Is(err, lockcore.ErrUnavailable) {
					t.Errorf("Acquire: %v", err)
				}
				close(s.release)
				synctest.Wait()
				le, err := l.Acquire(t.Context(), "k", noWait)
				if err != nil {
					t.Fatalf("after the calls have returned: %v", err)
				}
				_ = le.Release(t.Context())
			})
		})
	}
}
