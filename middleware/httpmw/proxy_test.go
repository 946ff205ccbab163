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

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// An upstream behind a ReverseProxy gets one request. Its chunked response, which the proxy
// flushes, is replayed completely.
func TestReverseProxy(t *testing.T) {
	var runs atomic.Int64
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("Content-Type", "text/csv")
		w.Header().Add("Set-Cookie", canary+"-session=1")
		w.WriteHeader(http.StatusCreated)
		for _, part := range []string{"a,", fmt.Sprint(len(body), ",")} {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
		}
		_, _ = fmt.Fprint(w, runs.Add(1))
		w.Header().Set("X-Sum", "42")
	}))
	defer up.Close()
	f := guarded(t, httpmw.IdempotentOptions{}, proxyTo(t, up).ServeHTTP)
	sum := fmt.Sprint("a,", len(secret("body")), ",1")
	for i := range 2 {
		a := f.post("k")
		if a.status != 201 || a.body != sum || a.header.Get("Content-Type") != "text/csv" || a.replayed() != (i == 1) {
			t.Errorf("%d: got %d %q %v", i, a.status, a.body, a.header)
		}
		if a.trailer.Get("X-Sum") != "42" {
			t.Errorf("%d: trailer is %v", i, a.trailer)
		}
		if cookies := a.header["Set-Cookie"]; len(cookies) != []int{2, 0}[i] {
			t.Errorf("%d: Set-Cookie is %q", i, cookies)
		}
	}
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// An upstream aborts within its response, and so does the proxy. The next request runs. If the
// client has got the status and a part of the body, the next request is refused.
// Shows: H13
func TestReverseProxyAborts(t *testing.T) {
	for _, limit := range []int{1000, 4} {
		var runs atomic.Int64
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "all of it")
			if runs.Add(1) == 1 {
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		}))
		defer up.Close()
		f, fr := fronted(t, httpmw.IdempotentOptions{MaxResponse: limit}, proxyTo(t, up))
		if a, err := f.send(f.request("POST", "/orders", "body", "Idempotency-Key", "k")); err == nil {
			t.Errorf("limit %d: got %d %q, want a broken answer", limit, a.status, a.body)
		}
		if p := <-fr.done; p != any(http.ErrAbortHandler) {
			t.Errorf("limit %d: panicked with %v", limit, p)
		}
		wantRuns := int64(1)
		if limit == 1000 {
			f.wantRan(f.post("k"), 200)
			wantRuns = 2
		} else {
			f.wantProblem(f.post("k"), 409, "not-replayable")
		}
		if runs.Load() != wantRuns {
			t.Errorf("limit %d: %d runs", limit, runs.Load())
		}
	}
}

// A ReverseProxy outside of Idempotent passes the key, refusals, the first response and its replay,
// with their trailers.
func TestBehindReverseProxy(t *testing.T) {
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		order(&runs)(w, r)
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Sum", "42")
	})
	outside := httptest.NewServer(proxyTo(t, f.srv))
	defer outside.Close()
	send := func(body string, headers ...string) answer {
		r := f.request("POST", "/orders?a=1", body, headers...)
		r.URL.Host, r.Host = outside.Listener.Addr().String(), ""
		a, err := f.send(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for i := range 2 {
		a := send("body", "Idempotency-Key", "k")
		if a.status != 201 || a.body != orderText(1, "body") || a.trailer.Get("X-Sum") != "42" || a.replayed() != (i == 1) {
			t.Errorf("%d: got %d %q, trailer %v, replayed %v", i, a.status, a.body, a.trailer, a.replayed())
		}
	}
	f.wantReplayed(f.do("POST", "/orders?a=1", "body", "Idempotency-Key", "k"), 201) // the same request without the proxy
	f.wantProblem(send("other", "Idempotency-Key", "k"), 422, "key-reused")
	f.wantProblem(send("body"), 400, "key-missing")
}

// proxyTo returns a ReverseProxy to up.
func proxyTo(t *testing.T, up *httptest.Server) *httputil.ReverseProxy {
	t.Helper()
	target, err := url.Parse(up.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &httputil.ReverseProxy{
		Transport: up.Client().Transport, ErrorLog: lookout.logger("log of the proxy"),
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
}
