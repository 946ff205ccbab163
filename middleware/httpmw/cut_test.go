package httpmw_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// silentOnce returns without a response when the ctx of its first run ends, and responds with 201
// later. told counts the runs that take over.
type silentOnce struct {
	runs, told atomic.Int64
	began      chan struct{}
}

func newSilentOnce() *silentOnce { return &silentOnce{began: make(chan struct{}, 1)} }

func (s *silentOnce) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.runs.Add(1) == 1 {
		s.began <- struct{}{}
		<-r.Context().Done()
		return
	}
	if _, tookOver := guard.Attempt(r.Context(), httpmw.Key(r.Context())); tookOver {
		s.told.Add(1)
	}
	w.WriteHeader(http.StatusCreated)
}

// A handler returns without a response because its ctx ended. The implicit 200 of net/http is
// neither sent nor recorded.
func TestCutShort(t *testing.T) {
	short := lockcore.Terms{MaxHold: time.Second}
	t.Run("at least once", func(t *testing.T) {
		t.Parallel()
		h := newSilentOnce()
		f := guarded(t, httpmw.IdempotentOptions{Terms: short}, h.ServeHTTP)
		f.wantProblem(f.post("k"), 503, "interrupted")
		f.wantRan(f.post("k"), 201)
		if h.told.Load() != 1 {
			t.Error("the next run did not take over")
		}
	})
	t.Run("at most once", func(t *testing.T) {
		t.Parallel()
		h := newSilentOnce()
		f := guarded(t, httpmw.IdempotentOptions{Terms: short, Mode: guard.AtMostOnce}, h.ServeHTTP)
		f.wantProblem(f.post("k"), 409, "outcome-unknown")
		f.wantProblem(f.post("k"), 409, "outcome-unknown")
	})
	t.Run("disconnect", func(t *testing.T) {
		t.Parallel()
		h := newSilentOnce()
		f, fr := fronted(t, httpmw.IdempotentOptions{CancelOnDisconnect: true}, h)
		ctx, cancel := context.WithCancel(t.Context())
		first := f.start(ctx, "k")
		<-h.began
		cancel()
		<-first
		<-fr.done
		f.wantRan(f.post("k"), 201)
	})
	t.Run("lease of an Exclusive inside", func(t *testing.T) {
		t.Parallel()
		h := newSilentOnce()
		f := newFixture(t, func(l *lockcore.Locker) http.Handler {
			alone := httpmw.Exclusive(l, fixed("account:1"), httpmw.ExclusiveOptions{Terms: short})
			return idempotent(l, httpmw.IdempotentOptions{})(alone(h))
		})
		f.wantProblem(f.post("k"), 503, "interrupted")
		f.wantRan(f.post("k"), 201)
	})
}

// A client disconnects when the key is granted, before the handler runs. The key keeps its state:
// free, or abandoned.
func TestDisconnectAtTheTransfer(t *testing.T) {
	var runs, told atomic.Int64
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		if _, tookOver := guard.Attempt(r.Context(), httpmw.Key(r.Context())); tookOver {
			told.Add(1)
		}
		w.WriteHeader(http.StatusCreated)
	})
	var granted atomic.Pointer[context.CancelFunc]
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		once := idempotent(l, httpmw.IdempotentOptions{})(h)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			if r.Header.Get("Leave") != "" {
				granted.Store(&cancel)
			}
			once.ServeHTTP(w, r.WithContext(ctx))
		})
	})
	f.events.hear(func(e event.Event) {
		if _, ok := e.(event.Granted); !ok {
			return
		}
		if cancel := granted.Swap(nil); cancel != nil {
			(*cancel)()
		}
	})
	dies := idempotent(f.locks, httpmw.IdempotentOptions{Mode: guard.AtMostOnce})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("dies") }))
	for i := range 50 {
		key := fmt.Sprint(i)
		if i%2 == 1 { // an earlier run died
			func() {
				defer func() { _ = recover() }()
				r := f.request("POST", "/orders", "body", "Idempotency-Key", key)
				r.RequestURI = "/orders"
				dies.ServeHTTP(httptest.NewRecorder(), r)
			}()
		}
		_, _ = f.send(f.request("POST", "/orders", "body", "Idempotency-Key", key, "Leave", "yes"))
		f.wantRan(f.post(key), 201)
		f.wantReplayed(f.post(key), 201)
	}
	if runs.Load() != 50 || told.Load() != 25 {
		t.Errorf("%d runs, %d of them took over; want 50 and 25", runs.Load(), told.Load())
	}
}

// A guard refuses a request inside a handler, and the handler writes a different response. That
// response is recorded.
func TestRefusalInsideABatch(t *testing.T) {
	var effects atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		part := httpmw.Exclusive(l, func(r *http.Request) (guard.Key, error) {
			if r.URL.Path == "/b" {
				return guard.Key{}, io.EOF
			}
			return guard.Key{ID: r.URL.Path}, nil
		}, httpmw.ExclusiveOptions{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { effects.Add(1) }))
		return idempotent(l, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, path := range []string{"/a", "/b"} {
				rec, one := httptest.NewRecorder(), r.Clone(r.Context())
				one.URL.Path = path
				part.ServeHTTP(rec, one)
				_, _ = fmt.Fprintln(w, path, rec.Code)
			}
		}))
	})
	f.wantRan(f.post("k"), 200)
	f.wantReplayed(f.post("k"), 200)
	if effects.Load() != 1 {
		t.Errorf("/a took effect %d times", effects.Load())
	}
}

// NoEffect and Unknown of a handler apply to every Idempotent around it.
func TestNestedNoEffect(t *testing.T) {
	for name, say := range map[string]func(context.Context){"no effect": httpmw.NoEffect, "unknown": httpmw.Unknown} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			f := newFixture(t, func(l *lockcore.Locker) http.Handler {
				inner := httpmw.Idempotent(l, func(*http.Request) (string, error) { return "inner", nil }, httpmw.IdempotentOptions{})
				return idempotent(l, httpmw.IdempotentOptions{})(inner(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if runs.Add(1) == 1 {
						say(r.Context())
						w.WriteHeader(http.StatusConflict)
						return
					}
					w.WriteHeader(http.StatusCreated)
				})))
			})
			f.wantRan(f.post("k"), 409)
			f.wantRan(f.post("k"), 201)
			f.wantReplayed(f.post("k"), 201)
		})
	}
}

// A handler calls Unknown, and the key is abandoned. With AtLeastOnce the next run takes over. With
// AtMostOnce it is refused.
func TestUnknown(t *testing.T) {
	for name, mode := range map[string]guard.Mode{"at least once": guard.AtLeastOnce, "at most once": guard.AtMostOnce} {
		t.Run(name, func(t *testing.T) {
			var runs, told atomic.Int64
			f := guarded(t, httpmw.IdempotentOptions{Mode: mode}, func(w http.ResponseWriter, r *http.Request) {
				if _, tookOver := guard.Attempt(r.Context(), httpmw.Key(r.Context())); tookOver {
					told.Add(1)
				}
				if runs.Add(1) == 1 {
					httpmw.Unknown(r.Context())
					w.WriteHeader(http.StatusGatewayTimeout)
				}
			})
			f.wantRan(f.post("k"), 504)
			f.wantProblem(f.do("POST", "/orders", "another", "Idempotency-Key", "k"), 422, "key-reused")
			if mode == guard.AtMostOnce {
				f.wantProblem(f.post("k"), 409, "outcome-unknown")
				return
			}
			f.wantRan(f.post("k"), 200)
			if told.Load() != 1 {
				t.Error("the next run did not take over")
			}
		})
	}
}

// Responses of an upstream server that ask the client to repeat the request are not recorded.
func TestComeAgainIsNotRecorded(t *testing.T) {
	for _, again := range []func(w http.ResponseWriter){
		func(w http.ResponseWriter) { w.Header().Set("Retry-After", "1"); w.WriteHeader(http.StatusConflict) },
		func(w http.ResponseWriter) { w.WriteHeader(499) },
	} {
		var runs atomic.Int64
		behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if runs.Add(1) == 1 {
				again(w)
			}
		}))
		defer behind.Close()
		to, err := url.Parse(behind.URL)
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.Transport = behind.Client().Transport
		f := guarded(t, httpmw.IdempotentOptions{}, proxy.ServeHTTP)
		f.post("k")
		f.wantRan(f.post("k"), 200)
	}
}

// A goroutine outlives its handler and writes. It does not change the response that is being
// recorded.
func TestLateWriter(t *testing.T) {
	returned, wrote := make(chan struct{}), make(chan error, 1)
	f := guarded(t, httpmw.IdempotentOptions{MaxResponse: 64}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "paid")
		go func() { // ends with its write
			<-returned
			w.WriteHeader(http.StatusTeapot)
			_, err := io.WriteString(w, strings.Repeat("x", 100))
			if err == nil {
				err = http.NewResponseController(w).Flush()
			}
			wrote <- err
		}()
	})
	var once sync.Once
	f.events.hear(func(e event.Event) {
		if _, ok := e.(event.Released); ok { // the handler has returned, and its response is not yet sent
			once.Do(func() {
				close(returned)
				if err := <-wrote; err == nil {
					t.Error("a late write returned no error")
				}
			})
		}
	})
	first := f.post("k")
	f.wantRan(first, 200)
	if again := f.post("k"); first.body != "paid" || again.body != "paid" || !again.replayed() {
		t.Errorf("%q, then %q", first.body, again.body)
	}
}
