package inspect_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/inspect"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
)

// counted tells what is written to a connection.
type counted struct {
	net.Conn
	wrote func([]byte)
}

func (c counted) Write(b []byte) (int, error) {
	c.wrote(b)
	return c.Conn.Write(b)
}

// countedLocker returns a Locker on a connection of its own, of which wrote gets each write.
func countedLocker(t *testing.T, s *locktest.Server, wrote func([]byte)) *lockcore.Locker {
	t.Helper()
	o := s.Options()
	dial := o.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return counted{c, wrote}, err
	}
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close(context.WithoutCancel(t.Context())) })
	return locks
}

// Five viewers cost one walk, and a minute after the last one nothing runs any more.
func TestViewersShareAWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := locktest.NewServer(t)
		var count atomic.Int64
		locks := countedLocker(t, s, func(b []byte) { count.Add(int64(bytes.Count(bytes.ToLower(b), []byte("$4\r\nscan\r\n")))) })
		h := inspect.New(locks, inspect.Options{})
		look := func(viewers int, d time.Duration) int64 {
			before := count.Load()
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				for range viewers {
					w := httptest.NewRecorder()
					if h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)); w.Code != http.StatusOK {
						t.Fatal(w.Body)
					}
				}
			}
			return count.Load() - before
		}
		one := look(1, 20*time.Second)
		five := look(5, 20*time.Second)
		if one < 15 || five > one+2 { // this server returns all names in one step, so a walk a second
			t.Errorf("%d steps for one viewer, %d for five", one, five)
		}
		time.Sleep(2 * time.Minute)
		if later := look(0, time.Minute); later != 0 {
			t.Errorf("%d steps without a viewer", later)
		}
		if again := look(1, 20*time.Second); again < one/2 {
			t.Errorf("%d steps for a viewer who comes later", again)
		}
		time.Sleep(2 * time.Minute) // otherwise a goroutine is left
	})
}

// The keys that are inspected each second are sent together, so a far server does not make the page old.
func TestInspectedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, seconds = 90, 3
		s := locktest.NewServer(t)
		holder := s.Locker(lockcore.Options{})
		var release []func()
		for i := range keys {
			release = append(release, locktest.Hold(t, holder, fmt.Sprint("k", i)))
		}
		var writes atomic.Int64
		h := inspect.New(countedLocker(t, s, func([]byte) { writes.Add(1) }), inspect.Options{})
		look := func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		}
		look()
		time.Sleep(2 * time.Second) // the walk has found them
		before := writes.Load()
		for range seconds {
			time.Sleep(time.Second)
			look()
		}
		if n := writes.Load() - before; n < seconds || n > keys*seconds/3 {
			t.Errorf("%d writes in %d s for %d keys", n, seconds, keys)
		}
		for _, end := range release {
			end()
		}
		time.Sleep(2 * time.Minute) // otherwise a goroutine is left
	})
}

// The keys of Once are in the lists of viewers that ask for them, and in no others. A viewer that stops
// asking takes them from no one.
func TestOnceIsForOneViewer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := open(t, false, inspect.Options{})
		for _, key := range []string{"payment:8", "payment:9"} {
			le, _, err := p.locks.Claim(t.Context(), key, lockcore.Claim{})
			if err != nil {
				t.Fatal(err)
			}
			_ = le.Abandon(t.Context())
		}
		lacks(t, p.get(http.StatusOK, "/stuck"), "payment:")
		p.get(http.StatusOK, "/stuck?once=yes")
		time.Sleep(10 * time.Second)
		contains(t, p.get(http.StatusOK, "/stuck?once=yes"), "payment:8", "payment:9", `Stuck <span id="count-stuck">2</span>`, "once=yes", `name="once" value="yes"`)
		contains(t, p.get(http.StatusOK, "/api/stuck?once=yes"), "payment:8")
		for _, target := range []string{"/", "/stuck", "/stuck?once=no", "/api/stuck", "/api/held", "/key?kind=exclusive&key=k"} {
			lacks(t, p.get(http.StatusOK, target), "payment:", `Stuck <span id="count-stuck">2</span>`)
		}
		contains(t, p.get(http.StatusOK, "/stuck?once=yes"), "payment:8")
		time.Sleep(2 * time.Minute) // otherwise a goroutine is left
	})
}

// Shutdown of the server does not wait for the streams.
func TestShutdown(t *testing.T) {
	p := open(t, false, inspect.Options{})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: p.h, ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.Addr().String()+"/events", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := srv.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// A page on a majority of servers, and one without a walk.
func TestQuorumAndLookups(t *testing.T) {
	var masters []*redis.Client
	for range 3 {
		rdb := redis.NewClient(locktest.NewServer(t).Options())
		t.Cleanup(func() { _ = rdb.Close() })
		masters = append(masters, rdb)
	}
	locks, err := lockcore.NewQuorum(masters, lockcore.Options{Terms: lockcore.Terms{Lease: time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	le, err := locks.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer le.Release(t.Context()) //nolint:errcheck // it may be revoked
	for pace, inList := range map[time.Duration]bool{0: true, -1: false} {
		p := &page{T: t, locks: locks, h: inspect.New(locks, inspect.Options{Pace: pace, Allow: func(*http.Request) error { return nil }})}
		for p.get(http.StatusOK, "/"); strings.Contains(p.get(http.StatusOK, "/api/held"), `"key": "k"`) != inList; { // the walk takes a moment
			time.Sleep(10 * time.Millisecond)
		}
		contains(t, p.get(http.StatusOK, "/find?q=k"), "is held by")
		contains(t, p.get(http.StatusOK, "/api/key?kind=exclusive&key=k"), `"state": "held"`)
		p.act(http.StatusSeeOther, "pause", "kind=exclusive&key=k", "reason", "r")
		p.act(http.StatusSeeOther, "end-pause", "kind=exclusive&key=k")
		contains(t, p.act(http.StatusConflict, "limit", "kind=exclusive&key=k", "reason", "r", "n", "1").Body.String(), "use one Redis")
	}
}

// silent keeps go-redis from logging that it has no connection.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// While Redis is away, the page says so.
func TestRedisAway(t *testing.T) {
	redis.SetLogger(silent{})
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	rdb := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1})
	defer rdb.Close()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer locks.Close(context.Background())
	p := &page{T: t, locks: locks, h: inspect.New(locks, inspect.Options{})}
	for !strings.Contains(p.get(http.StatusOK, "/"), `class="problem"`) { // the walk fails after a second
		time.Sleep(100 * time.Millisecond)
	}
	contains(t, p.get(http.StatusServiceUnavailable, "/key?kind=exclusive&key=k"), "unavailable")
	p.get(http.StatusServiceUnavailable, "/api/key?kind=exclusive&key=k")
	p.get(http.StatusServiceUnavailable, "/find?q=k")
}

// After a time with too many keys, the page stops saying that some are missing. Free keys that were not
// released take no place of those that are held.
func TestManyKeys(t *testing.T) {
	testlevel.Full(t)
	const many = 10_010
	synctest.Test(t, func(t *testing.T) {
		p := open(t, false, inspect.Options{})
		for i := range many {
			if _, err := p.locks.AcquireFixed(t.Context(), fmt.Sprint("dead-", i), lockcore.Terms{Lease: time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if h, err := p.locks.Inspect(t.Context(), event.KindExclusive, "dead-0"); err != nil || !h.NotReleased || h.State != lockcore.StateFree {
			t.Fatalf("%+v, %v", h, err)
		}
		look := func(d time.Duration, complete string) {
			t.Helper()
			if err := p.locks.Pause(t.Context(), "late", time.Hour, "r"); err != nil {
				t.Fatal(err)
			}
			p.get(http.StatusOK, "/")
			time.Sleep(d)
			if list := p.get(http.StatusOK, "/api/held"); !strings.Contains(list, `"complete": `+complete) || complete == "true" && !strings.Contains(list, `"key": "late"`) {
				t.Errorf("complete is not %s, in %.200s", complete, list)
			}
		}
		look(5*time.Second, "true")
		for i := range many {
			if err := p.locks.Pause(t.Context(), fmt.Sprint("dead-", i), 15*time.Second, "r"); err != nil {
				t.Fatal(err)
			}
		}
		look(5*time.Second, "false")
		look(30*time.Second, "true")
		time.Sleep(2 * time.Minute) // otherwise a goroutine is left
	})
}
