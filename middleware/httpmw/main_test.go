package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Shows: H6
func TestMain(m *testing.M) { goleak.VerifyTestMain(watchedRun{m}, redistest.PoolProbes()) }

// tenant is the scope function of these tests.
func tenant(r *http.Request) (string, error) {
	switch t := r.Header.Get("X-Tenant"); t {
	case "nobody":
		return "", errors.New("no credentials")
	case "empty":
		return "", nil
	default:
		return "tenant:" + t, nil
	}
}

type fixture struct {
	t      *testing.T
	redis  *miniredis.Miniredis
	sent   *atomic.Int64 // writes to Redis
	locks  *lockcore.Locker
	events *events
	srv    *httptest.Server
}

// newFixture starts a real server with the handler that serve returns. Its connections, events and
// logs are searched for canaries.
func newFixture(t *testing.T, serve func(*lockcore.Locker) http.Handler) *fixture {
	t.Helper()
	f := unstarted(t, serve)
	f.srv.Start()
	return f
}

// unstarted returns a fixture whose server is not started.
func unstarted(t *testing.T, serve func(*lockcore.Locker) http.Handler) *fixture {
	t.Helper()
	f := &fixture{t: t, redis: miniredis.RunT(t), sent: new(atomic.Int64), events: &events{waiting: make(chan struct{}, 1)}}
	o := &redis.Options{Addr: f.redis.Addr(), DisableIdentity: true}
	o.Dialer = lookout.dial(redis.NewDialer(o), f.sent)
	rdb := redis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	locks, err := lockcore.New(rdb, lockcore.Options{Observer: event.Join(f.events, lookout.observer)})
	if err != nil {
		t.Fatal(err)
	}
	f.locks = locks
	t.Cleanup(func() {
		if err := locks.Close(context.Background()); err != nil {
			t.Errorf("close the locker: %v", err)
		}
	})
	f.srv = httptest.NewUnstartedServer(serve(locks))
	f.srv.Config.ErrorLog = lookout.logger("server log")
	t.Cleanup(f.srv.Close)
	return f
}

// guarded returns a fixture with h behind Idempotent.
func guarded(t *testing.T, o httpmw.IdempotentOptions, h http.HandlerFunc) *fixture {
	t.Helper()
	return newFixture(t, func(l *lockcore.Locker) http.Handler { return idempotent(l, o)(h) })
}

// idempotent returns the middleware of these tests. Its problems are searched for canaries, and
// each response of the handler has headers that belong to one client.
func idempotent(l *lockcore.Locker, o httpmw.IdempotentOptions) func(http.Handler) http.Handler {
	write := o.Problem
	if write == nil {
		write = httpmw.WriteProblem
	}
	o.Problem = func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
		lookout.look("problem", fmt.Sprintf("%+v", p))
		write(w, r, p)
	}
	once := httpmw.Idempotent(l, tenant, o)
	return func(next http.Handler) http.Handler {
		return once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Set-Cookie", canary+"-cookie=1")
			w.Header().Set("WWW-Authenticate", canary+"-challenge")
			next.ServeHTTP(w, r)
		}))
	}
}

type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

func (a answer) replayed() bool { return a.header.Get("Idempotent-Replayed") == "true" }

// problem returns the last part of the type of a problem, or "".
func (a answer) problem() string {
	if a.header.Get("Content-Type") != "application/problem+json" {
		return ""
	}
	_, rest, _ := strings.Cut(a.body, `"type":"https://github.com/holdfast-go/holdfast/blob/main/docs/problems.md#`)
	name, _, _ := strings.Cut(rest, `"`)
	return name
}

// request makes a request whose key, body, tenant and credentials have a canary.
func (f *fixture) request(method, path, body string, headers ...string) *http.Request {
	f.t.Helper()
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.srv.URL+path, strings.NewReader(secret(body)))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("X-Tenant", secretTenant("a"))
	r.Header.Set("Authorization", "Bearer "+canary+"-authorization")
	for i := 0; i < len(headers); i += 2 {
		switch headers[i] {
		case "X-Tenant":
			r.Header.Set("X-Tenant", secretTenant(headers[i+1]))
		case "Idempotency-Key":
			r.Header.Add("Idempotency-Key", secretKey(headers[i+1]))
		default:
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	return r
}

// send reads a response to its end. It may be called on any goroutine.
func (f *fixture) send(r *http.Request) (answer, error) {
	res, err := f.srv.Client().Do(r)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, res.Trailer, string(b)}, err
}

// start sends a POST and returns a channel for its response.
func (f *fixture) start(ctx context.Context, key string) <-chan answer {
	r := f.request("POST", "/orders", "body", "Idempotency-Key", key).WithContext(ctx)
	c := make(chan answer, 1)
	go func() { // ends with the answer or with ctx
		a, _ := f.send(r)
		c <- a
	}()
	return c
}

func (f *fixture) do(method, path, body string, headers ...string) answer {
	f.t.Helper()
	a, err := f.send(f.request(method, path, body, headers...))
	if err != nil {
		f.t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// post sends the same POST in each call with the same key.
func (f *fixture) post(key string) answer {
	f.t.Helper()
	return f.do("POST", "/orders", "body", "Idempotency-Key", key)
}

func (f *fixture) wantRan(a answer, status int) {
	f.t.Helper()
	if a.status != status || a.replayed() || a.problem() != "" {
		f.t.Fatalf("got %d %q, replayed %v; want the response of a run with %d", a.status, a.body, a.replayed(), status)
	}
}

func (f *fixture) wantReplayed(a answer, status int) {
	f.t.Helper()
	if a.status != status || !a.replayed() {
		f.t.Fatalf("got %d %q, replayed %v; want a replay with %d", a.status, a.body, a.replayed(), status)
	}
}

func (f *fixture) wantProblem(a answer, status int, problem string) {
	f.t.Helper()
	if a.status != status || a.problem() != problem || a.replayed() {
		f.t.Fatalf("got %d %q, replayed %v; want the problem %s with %d", a.status, a.body, a.replayed(), problem, status)
	}
}

// events is a Recorder that also passes events on.
type events struct {
	locktest.Recorder
	waiting chan struct{} // hears of one Waiting, if there is room

	mu sync.Mutex
	on func(event.Event) // called without the lock
}

// hear makes Event call on for each later event.
func (e *events) hear(on func(event.Event)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.on = on
}

func (e *events) Event(ctx context.Context, ev event.Event) {
	e.Recorder.Event(ctx, ev)
	e.mu.Lock()
	on := e.on
	e.mu.Unlock()
	if on != nil {
		on(ev)
	}
	if _, ok := ev.(event.Waiting); ok {
		select {
		case e.waiting <- struct{}{}:
		default:
		}
	}
}

func count[E event.Event](e *events) int { return len(locktest.EventsOf[E](&e.Recorder)) }
