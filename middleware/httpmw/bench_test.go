package httpmw_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

const receipt = `{"id":"ch_1","amount":499,"currency":"eur","status":"succeeded"}`

// BenchmarkReplay compares a replay with a handler that sends one GET with the same client.
// Requests come one at a time, from many goroutines, and from many clients of a real server.
func BenchmarkReplay(b *testing.B) {
	rdb := redistest.Real(b).Client(b)
	locks, err := lockcore.New(rdb, lockcore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = locks.Close(context.Background()) })
	handlers := []struct {
		name string
		http.Handler
	}{{"get", getter(b, rdb)}, {"replay", httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{})(http.HandlerFunc(pay))}}
	for i := range 1000 { // so that every key has its record before the measurement
		serveOnce(b, handlers[1], i)
	}
	for _, h := range handlers {
		b.Run("one/"+h.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				serveOnce(b, h, i)
			}
		})
	}
	for _, h := range handlers {
		b.Run("many/"+h.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(32)
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					serveOnce(b, h, int(next.Add(1)))
				}
			})
		})
	}
	for _, h := range handlers {
		b.Run("server/"+h.name, func(b *testing.B) { throughServer(b, h) })
	}
}

func pay(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, receipt)
}

// getter responds with a value that it reads from Redis.
func getter(b *testing.B, rdb *redis.Client) http.Handler {
	b.Helper()
	if err := rdb.Set(b.Context(), "receipt", receipt, 0).Err(); err != nil {
		b.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := rdb.Get(r.Context(), "receipt").Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(body)
	})
}

// keyOf returns one of 1000 keys. Concurrent requests rarely have the same key, so each replay
// sends a command.
func keyOf(i int) string { return strconv.Itoa(i % 1000) }

func serveOnce(b *testing.B, h http.Handler, i int) {
	b.Helper()
	r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/charges", strings.NewReader(`{"amount":499}`))
	r.Header.Set("Idempotency-Key", keyOf(i))
	r.Header.Set("X-Tenant", "a")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusCreated || w.Body.String() != receipt {
		b.Errorf("%d %s", w.Code, w.Body)
	}
}

func throughServer(b *testing.B, h http.Handler) {
	b.Helper()
	srv := httptest.NewServer(h)
	b.Cleanup(srv.Close)
	if t, ok := srv.Client().Transport.(*http.Transport); ok {
		t.MaxIdleConnsPerHost = 64
	}
	b.ReportAllocs()
	b.SetParallelism(16)
	var next atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/charges", strings.NewReader(`{"amount":499}`))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Idempotency-Key", keyOf(int(next.Add(1))))
			r.Header.Set("X-Tenant", "a")
			res, err := srv.Client().Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			body, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err != nil || res.StatusCode != http.StatusCreated || string(body) != receipt {
				b.Errorf("%d %s %v", res.StatusCode, body, err)
			}
		}
	})
}

// BenchmarkChecks measures the part of a request before its first command. The Locker is closed, so
// the call ends there.
func BenchmarkChecks(b *testing.B) {
	locks := locktest.New(b)
	if err := locks.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
	silent := func(w http.ResponseWriter, _ *http.Request, p httpmw.Problem) { w.WriteHeader(p.Status) }
	for name, h := range map[string]http.Handler{
		"Exclusive":  httpmw.Exclusive(locks, fixed("account:42"), httpmw.ExclusiveOptions{Problem: silent})(http.HandlerFunc(pay)),
		"Idempotent": httpmw.Idempotent(locks, tenant, httpmw.IdempotentOptions{Problem: silent})(http.HandlerFunc(pay)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/charges", strings.NewReader(`{"amount":499}`))
				r.Header.Set("Idempotency-Key", "k")
				r.Header.Set("X-Tenant", "a")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusServiceUnavailable {
					b.Fatal(w.Code)
				}
			}
		})
	}
}
