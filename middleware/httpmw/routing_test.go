package httpmw_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Behind StripPrefix both requests have the path /7: their keys must not meet.
func TestStripPrefix(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		once := httpmw.Idempotent(l, tenant, httpmw.Options{})
		mux := http.NewServeMux()
		for _, name := range []string{"charge", "refund"} {
			mux.Handle("/"+name+"/", http.StripPrefix("/"+name, once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprintf(w, "%s of %s", name, r.URL.Path)
			}))))
		}
		return mux
	})
	for range 2 {
		for _, name := range []string{"charge", "refund"} {
			if a := f.do("POST", "/"+name+"/7", "", "Idempotency-Key", "k"); a.body != name+" of /7" {
				t.Errorf("%s got %q", name, a.body)
			}
		}
	}
}

// Around a ServeMux and inside of it: the handler sees its path values, and what stands in front sees the pattern.
func TestServeMux(t *testing.T) {
	for _, outside := range []bool{true, false} {
		var pattern string
		f := newFixture(t, func(l *lockcore.Locker) http.Handler {
			once := httpmw.Idempotent(l, tenant, httpmw.Options{})
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) })
			if !outside {
				h = once(h)
			}
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}", h)
			h = mux
			if outside {
				h = once(h)
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				pattern = r.Pattern
			})
		})
		if a := f.do("POST", "/orders/7", "", "Idempotency-Key", "k"); a.body != "7" || pattern != "POST /orders/{id}" {
			t.Errorf("outside %v: got %d %q, pattern %q", outside, a.status, a.body, pattern)
		}
		f.wantReplayed(f.do("POST", "/orders/7", "", "Idempotency-Key", "k"), 200)
	}
}

// Mounted twice on one route it would wait for itself: that is said at once.
func TestMountedTwice(t *testing.T) {
	var runs atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		once := httpmw.Idempotent(l, tenant, httpmw.Options{})
		return once(once(order(&runs)))
	})
	f.wantProblem(f.post("k"), 500, "internal")
	if runs.Load() != 0 {
		t.Error("the handler ran")
	}
}

// An upstream behind a ReverseProxy is asked once; its chunked answer, which the proxy flushes, is replayed whole.
func TestReverseProxy(t *testing.T) {
	var runs atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Content-Type", "text/csv")
		w.Header().Set("Set-Cookie", "session=1")
		w.WriteHeader(http.StatusCreated)
		for _, part := range []string{"a,", string(body)} {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = fmt.Fprint(w, runs.Add(1))
		w.Header().Set("X-Sum", "42")
	}))
	defer up.Close()
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: up.Client().Transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	f := guarded(t, httpmw.Options{Headers: []string{"x-sum"}}, proxy.ServeHTTP)
	for i := range 2 {
		a := f.post("k")
		if a.status != 201 || a.body != "a,body1" || a.header.Get("Content-Type") != "text/csv" || a.replayed() != (i == 1) {
			t.Errorf("%d: got %d %q %v", i, a.status, a.body, a.header)
		}
		if a.trailer.Get("X-Sum") != "42" {
			t.Errorf("%d: trailer is %v", i, a.trailer)
		}
		if cookie := a.header.Get("Set-Cookie"); (cookie != "") != (i == 0) {
			t.Errorf("%d: Set-Cookie is %q", i, cookie)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// An upstream that breaks off makes the proxy abort: nothing is recorded.
func TestReverseProxyAborts(t *testing.T) {
	var runs atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "all of it")
		if runs.Add(1) == 1 {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	defer up.Close()
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: up.Client().Transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	f := guarded(t, httpmw.Options{}, proxy.ServeHTTP)
	if a, err := f.send(f.request("POST", "/orders", "body", "Idempotency-Key", "k")); err == nil {
		t.Errorf("got %d %q, want a broken answer", a.status, a.body)
	}
	f.wantRan(f.post("k"), 200)
}
