package httpmw_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// overHTTP2 returns a fixture with h behind Idempotent, whose client uses HTTP/2.
func overHTTP2(t *testing.T, o httpmw.IdempotentOptions, h http.HandlerFunc) (*fixture, *front) {
	t.Helper()
	fr := &front{gone: make(chan struct{}, 1), done: make(chan any, 1)}
	f := unstarted(t, func(l *lockcore.Locker) http.Handler {
		fr.next = idempotent(l, o)(h)
		return fr
	})
	f.srv.EnableHTTP2 = true
	f.srv.StartTLS()
	return f, fr
}

// Over HTTP/2 a response is replayed with its trailers, and a body without a Content-Length is
// compared.
func TestHTTP2(t *testing.T) {
	var runs atomic.Int64
	next := order(&runs)
	f, _ := overHTTP2(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the request came by %s", r.Proto)
		}
		w.Header().Set("Trailer", "X-Sum")
		next(w, r)
		_ = http.NewResponseController(w).Flush()
		w.Header().Set("X-Sum", "42")
		w.Header().Set(http.TrailerPrefix+"X-Late", "43")
	})
	for i := range 3 {
		r := f.request("POST", "/orders", "body", "Idempotency-Key", "k")
		if i == 2 {
			r.ContentLength = -1
		}
		a, err := f.send(r)
		if err != nil || a.status != 201 || a.body != orderText(1, "body") || a.replayed() != (i > 0) {
			t.Errorf("%d: got %d %q, replayed %v, %v", i, a.status, a.body, a.replayed(), err)
		}
		if a.trailer.Get("X-Sum") != "42" || a.trailer.Get("X-Late") != "43" {
			t.Errorf("%d: trailer is %v", i, a.trailer)
		}
	}
	f.wantProblem(f.do("POST", "/orders", "other", "Idempotency-Key", "k"), 422, "key-reused")
	f.wantProblem(f.do("POST", "/orders", "other"), 400, "key-missing")
}

// Over HTTP/2 a large response reaches the client while the handler writes it.
func TestHTTP2Stream(t *testing.T) {
	read := make(chan struct{})
	f, _ := overHTTP2(t, httpmw.IdempotentOptions{MaxResponse: 4}, func(w http.ResponseWriter, _ *http.Request) {
		for _, part := range []string{"first", "other"} {
			_, _ = io.WriteString(w, part)
			_ = http.NewResponseController(w).Flush()
			<-read
		}
	})
	res, err := f.srv.Client().Do(f.request("POST", "/orders", "body", "Idempotency-Key", "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for _, want := range []string{"first", "other"} {
		buf := make([]byte, len(want))
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != want {
			t.Errorf("read %q, %v; want %q", buf, err, want)
		}
		read <- struct{}{}
	}
	if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
	f.wantProblem(f.post("k"), 409, "not-replayable")
}

// Over HTTP/2 a client cancels its stream, before or within the response. The handler's ctx does
// not end, and its reads and writes succeed. It runs once, and a repetition gets its response, or
// 409 if that was streamed.
// Shows: H4
func TestHTTP2Disconnect(t *testing.T) {
	for _, streams := range []bool{false, true} {
		t.Run(fmt.Sprintf("streams %v", streams), func(t *testing.T) {
			var runs atomic.Int64
			begun, gone := make(chan struct{}, 1), make(chan struct{})
			f, fr := overHTTP2(t, httpmw.IdempotentOptions{MaxResponse: 1000}, func(w http.ResponseWriter, r *http.Request) {
				runs.Add(1)
				if streams {
					_, _ = io.WriteString(w, strings.Repeat("x", 1001))
					_ = http.NewResponseController(w).Flush()
				}
				begun <- struct{}{}
				<-gone
				if n, err := io.Copy(io.Discard, r.Body); int(n) != len(secret("body")) || err != nil {
					t.Errorf("read %d bytes of the body, %v", n, err)
				}
				if n, err := w.Write(make([]byte, 1000)); n != 1000 || err != nil {
					t.Errorf("wrote %d bytes, %v", n, err)
				}
				if err := http.NewResponseController(w).Flush(); err != nil {
					t.Errorf("flush: %v", err)
				}
				if err := context.Cause(r.Context()); err != nil {
					t.Errorf("the handler's ctx ended: %v", err)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			first := f.start(ctx, "k")
			<-begun
			cancel()
			<-first
			<-fr.gone
			close(gone)
			<-fr.done
			if a := f.post("k"); streams {
				f.wantProblem(a, 409, "not-replayable")
			} else if f.wantReplayed(a, 200); len(a.body) != 1000 {
				t.Errorf("replayed %d bytes", len(a.body))
			}
			if runs.Load() != 1 {
				t.Errorf("%d runs", runs.Load())
			}
		})
	}
}
