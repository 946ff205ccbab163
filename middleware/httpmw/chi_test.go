package httpmw_test

import (
	"io"
	"log"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Idempotent is around chi's router or on one of its routes. The handler gets the URL parameters,
// and different paths do not share keys.
func TestChi(t *testing.T) {
	for name, mount := range map[string]func(chi.Router, func(http.Handler) http.Handler, http.HandlerFunc){
		"Use": func(c chi.Router, once func(http.Handler) http.Handler, h http.HandlerFunc) {
			c.Use(once)
			c.Post("/{kind}/{id}", h)
		},
		"With": func(c chi.Router, once func(http.Handler) http.Handler, h http.HandlerFunc) {
			c.With(once).Post("/{kind}/{id}", h)
		},
		"Route": func(c chi.Router, once func(http.Handler) http.Handler, h http.HandlerFunc) {
			c.Route("/{kind}", func(c chi.Router) {
				c.Use(once)
				c.Post("/{id}", h)
			})
		},
		"Mount": func(c chi.Router, once func(http.Handler) http.Handler, h http.HandlerFunc) {
			sub := chi.NewRouter()
			sub.With(once).Post("/{id}", h)
			c.Mount("/{kind}", sub)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, func(l *lockcore.Locker) http.Handler {
				c := chi.NewRouter()
				mount(c, idempotent(l, httpmw.IdempotentOptions{}), func(w http.ResponseWriter, r *http.Request) {
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, chi.URLParam(r, "kind")+" "+chi.URLParam(r, "id"))
				})
				return c
			})
			for i := range 2 {
				for path, want := range map[string]string{"/orders/7": "orders 7", "/orders/8": "orders 8", "/refunds/7": "refunds 7"} {
					if a := f.do("POST", path, "", "Idempotency-Key", "k"); a.status != 201 || a.body != want || a.replayed() != (i == 1) {
						t.Errorf("%s: got %d %q, replayed %v", path, a.status, a.body, a.replayed())
					}
				}
			}
			f.wantProblem(f.do("POST", "/orders/7", ""), 400, "key-missing")
		})
	}
}

// chi's Timeout is outside of Idempotent. It ends the wait of a request, and not the ctx of a
// handler that runs. The response of that handler is sent and recorded.
func TestChiTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		var runs atomic.Int64
		c := chi.NewRouter()
		c.Use(middleware.Timeout(time.Second), idempotent(b.locks, httpmw.IdempotentOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}}))
		c.Post("/orders", func(w http.ResponseWriter, r *http.Request) {
			runs.Add(1)
			time.Sleep(3 * time.Second)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the handler's ctx ended: %v", err)
			}
			w.WriteHeader(http.StatusCreated)
		})
		first := make(chan answer, 1)
		go func() { first <- post(c) }() // ends with the handler
		synctest.Wait()
		start := time.Now()
		if a := post(c); a.status != 409 || a.problem() != "in-progress" || time.Since(start) != time.Second {
			t.Errorf("the second got %d %q after %v", a.status, a.body, time.Since(start))
		}
		if a := <-first; a.status != 201 || a.replayed() {
			t.Errorf("the first got %d %q", a.status, a.body)
		}
		if a := post(c); a.status != 201 || !a.replayed() || runs.Load() != 1 {
			t.Errorf("then got %d %q, %d runs", a.status, a.body, runs.Load())
		}
	})
}

// chi's Recoverer is outside of Idempotent. It responds to a panic with 500, and the key is free.
func TestChiRecoverer(t *testing.T) {
	var runs atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		c := chi.NewRouter()
		c.Use(middleware.RequestLogger(chiLog{lookout.logger("log of chi")}), middleware.Recoverer)
		c.With(idempotent(l, httpmw.IdempotentOptions{})).Post("/orders", func(w http.ResponseWriter, _ *http.Request) {
			if runs.Add(1) == 1 {
				_, _ = io.WriteString(w, "never seen")
				panic("a mistake")
			}
			w.WriteHeader(http.StatusCreated)
		})
		return c
	})
	if a := f.post("k"); a.status != 500 || a.body != "" || a.problem() != "" {
		t.Errorf("got %d %q", a.status, a.body)
	}
	f.wantRan(f.post("k"), 201)
	f.wantReplayed(f.post("k"), 201)
}

// chiLog logs the data that chi's own logger would log.
type chiLog struct{ *log.Logger }

func (l chiLog) NewLogEntry(r *http.Request) middleware.LogEntry {
	l.Println(r.Method, r.RequestURI)
	return l
}

func (l chiLog) Write(status, n int, _ http.Header, took time.Duration, _ any) {
	l.Println(status, n, took)
}

func (l chiLog) Panic(v any, stack []byte) { l.Printf("%v\n%s", v, stack) }
