package docs_test

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// counted is a Locker on a real server that counts its commands.
type counted struct {
	*lockcore.Locker
	count redistest.Counter
}

func newCounted(t *testing.T, srv *redistest.Server) *counted {
	t.Helper()
	c := new(counted)
	rdb := srv.Client(t, func(o *redis.Options) { o.Dialer = c.count.Dial(redis.NewDialer(o)) })
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.Locker = locks
	t.Cleanup(func() { _ = locks.Close(context.Background()) })
	return c
}

// acquire waits forever, unless terms has a Wait.
func (c *counted) acquire(t *testing.T, key string, terms lockcore.Terms) *lockcore.Lease {
	t.Helper()
	if terms.Wait == 0 {
		terms.Wait = lockcore.Forever
	}
	lease, err := c.Acquire(t.Context(), key, terms)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func release(t *testing.T, lease *lockcore.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// until waits up to 10 s until is returns true, for a state that only Redis shows.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// queued returns a function that reports whether n processes are in the queue of key.
func queued(t *testing.T, c *counted, key string, n int) func() bool {
	t.Helper()
	return func() bool {
		i, err := c.Inspect(t.Context(), event.KindExclusive, key)
		return err == nil && i.Queue == n
	}
}

// Each call sends the commands that the page states, by the names of the scripts.
// Shows: C1
func TestCommandsOfThePage(t *testing.T) {
	srv := redistest.Real(t)
	a, b := newCounted(t, srv), newCounted(t, srv)
	done := make(chan struct{})
	waitFor := func(c *counted, key string) { // as another process
		lease := c.acquire(t, key, lockcore.Terms{})
		release(t, lease)
		done <- struct{}{}
	}
	transfer := func(key string, requests int) { // requests: the number of acquires that b sends before it waits for a notification
		lease := a.acquire(t, key, lockcore.Terms{})
		requests += b.count.Count("acquire")
		go waitFor(b, key)
		until(t, "b waits", func() bool { return b.count.Count("acquire") == requests && queued(t, a, key, 1)() })
		a.count.Reset()
		release(t, lease)
		<-done
	}
	h := httpmw.Idempotent(a.Locker, func(*http.Request) (string, error) { return "acme", nil }, httpmw.IdempotentOptions{})(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }))
	run := func(context.Context) error { return nil }
	for _, c := range []*counted{a, b} { // so that each Counter gets the source of the script, and with it its name
		if err := srv.Client(t).ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		release(t, c.acquire(t, "warm", lockcore.Terms{}))
	}
	_, _ = guard.Once(t.Context(), a.Locker, "warm", guard.OnceOptions{}, run)
	b.count.Reset()
	transfer("warm", 2) // the second acquire follows the subscription
	if got := b.count.String(); got != "acquire 3, release 1, subscribe 1" {
		t.Errorf("the first wait of a Locker: sent %s", got)
	}
	for _, tt := range []struct {
		name string
		of   *counted
		do   func()
		want string
	}{
		{"acquire and release", a, func() { release(t, a.acquire(t, "k", lockcore.Terms{})) }, "acquire 1, release 1"},
		{"a waiting acquire, and its release", b, func() { transfer("k", 1) }, "acquire 2, release 1"},
		{"hand-off to another process", a, func() { transfer("k", 1) }, "release 1"},
		{"once, first", a, func() { _, _ = guard.Once(t.Context(), a.Locker, "o", guard.OnceOptions{}, run) }, "acquire 1, complete 1"},
		{"once, duplicate", a, func() { _, _ = guard.Once(t.Context(), a.Locker, "o", guard.OnceOptions{}, run) }, "acquire 1"},
		{"HTTP, first", a, func() { post(h, "amount=1") }, "acquire 1, complete 1"},
		{"HTTP, replay", a, func() { post(h, "amount=1") }, "acquire 1"},
	} {
		tt.of.count.Reset()
		tt.do()
		if got := tt.of.count.String(); got != tt.want {
			t.Errorf("%s: sent %s, want %s", tt.name, got, tt.want)
		}
	}
}

// The keys need the memory that the page states, by MEMORY USAGE. It depends on the names of the
// host and the task, so the test allows a factor of 1.5.
// Shows: C3
func TestMemoryOfThePage(t *testing.T) {
	srv := redistest.Real(t)
	rdb := srv.Client(t)
	a, b := newCounted(t, srv), newCounted(t, srv)
	usage := func(suffix string) (all int64) {
		for _, name := range rdb.Keys(t.Context(), "*{account:42}"+suffix).Val() {
			all += rdb.MemoryUsage(t.Context(), name, 0).Val()
		}
		return all
	}
	check := func(what string, got, want int64) {
		t.Helper()
		t.Logf("%s: %d bytes", what, got)
		if got < want*2/3 || got > want*3/2 {
			t.Errorf("%s: %d bytes, the page says %d", what, got, want)
		}
	}
	lease := a.acquire(t, "account:42", lockcore.Terms{})
	check("held, without waiters", usage(""), 184)
	const procs = 10
	var waiting []chan struct{}
	for range procs {
		c, done := newCounted(t, srv), make(chan struct{})
		waiting = append(waiting, done)
		go func() {
			defer close(done)
			if l, err := c.Acquire(t.Context(), "account:42", lockcore.Terms{Wait: lockcore.Forever}); err == nil {
				_ = l.Release(t.Context())
			}
		}()
	}
	until(t, "all wait", queued(t, a, "account:42", procs))
	check("held, with waiters", usage(""), 232)
	check("a process in the queue", usage(":q")/procs, 84)
	release(t, lease)
	for _, done := range waiting {
		<-done
	}
	release(t, a.acquire(t, "free", lockcore.Terms{}))
	if names := rdb.Keys(t.Context(), "*{free}*").Val(); len(names) > 0 {
		t.Errorf("a free key leaves %v", names)
	}
	_, _ = guard.OnceValue(t.Context(), b.Locker, "account:42", guard.OnceOptions{}, func(context.Context) (string, error) { return strings.Repeat("a", 100), nil })
	for _, name := range rdb.Keys(t.Context(), "*:o:*").Val() {
		check("a record", rdb.MemoryUsage(t.Context(), name, 0).Val(), 264)
	}
}

// A Locker has the connections and goroutines that the page states. Calls that follow each other
// share one connection of each pool. If a reply takes longer than 200 ms, the Locker looks for the
// server on a new connection, so on a busy machine only one of ten rounds has to show the numbers.
// Shows: C1, C3
func TestConnectionsOfThePage(t *testing.T) {
	var wrong []string
	for range 10 {
		if wrong = connectionsOfThePage(t); wrong == nil {
			return
		}
	}
	t.Errorf("%q", wrong)
}

// connectionsOfThePage returns what differs from the page.
func connectionsOfThePage(t *testing.T) (wrong []string) {
	t.Helper()
	srv := redistest.Real(t)
	admin := srv.Client(t)
	connections := func() int {
		return strings.Count(admin.ClientList(t.Context()).Val(), "\n")
	}
	other := newCounted(t, srv)
	lease := other.acquire(t, "k", lockcore.Terms{})
	rdb := srv.Client(t) // before goroutines are counted, because it starts some
	before, goroutines := connections(), runtime.NumGoroutine()
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a := &counted{Locker: locks}
	defer func() { _ = locks.Close(context.Background()) }()
	check := func(when string, conns, gos int) {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end) && (connections()-before < conns || runtime.NumGoroutine()-goroutines > gos); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(50 * time.Millisecond) // by then a superfluous connection or goroutine would exist
		if got := connections() - before; got != conns {
			wrong = append(wrong, fmt.Sprintf("%s: %d connections, want %d", when, got, conns))
		}
		if got := runtime.NumGoroutine() - goroutines; got > gos {
			wrong = append(wrong, fmt.Sprintf("%s: %d goroutines, want at most %d", when, got, gos))
		}
	}
	check("new", 0, 0)
	for range 10 {
		release(t, a.acquire(t, "mine", lockcore.Terms{}))
	}
	check("after calls, one after another", 2, 0)
	short := a.acquire(t, "short", lockcore.Terms{Lease: time.Second}) // renewed before it is a second old, which would need a subscription
	until(t, "a renewal", func() bool { return connections()-before >= 3 })
	release(t, short)
	check("after a renewal", 3, 0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		release(t, a.acquire(t, "k", lockcore.Terms{}))
	}()
	until(t, "a waits", queued(t, other, "k", 1))
	check("while a call waits", 4, 4+1) // 1 is the caller
	release(t, lease)
	<-done
	return wrong
}
