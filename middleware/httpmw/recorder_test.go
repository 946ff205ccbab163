package httpmw_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// A Flush before the end of the handler sends nothing before the response is recorded, and does not
// change its status.
func TestFlushIsRemembered(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusCreated)
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		} else {
			t.Error("the handler's writer is no http.Flusher")
		}
		_, _ = io.WriteString(w, "one ")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		_, _ = io.WriteString(w, "two")
		w.Header().Set("X-Late", "never seen")
		w.WriteHeader(http.StatusTeapot)
	})
	first, again := f.post("k"), f.post("k")
	f.wantRan(first, 201)
	f.wantReplayed(again, 201)
	for _, a := range []answer{first, again} {
		if a.body != "one two" || a.header.Get("Location") != "/orders/1" || a.header.Get("X-Late") != "" || a.header.Get("Content-Length") != "7" {
			t.Errorf("got %q with %v", a.body, a.header)
		}
	}
}

func TestRawWriterIsHidden(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		if _, ok := w.(interface{ Unwrap() http.ResponseWriter }); ok {
			t.Error("Unwrap leads to the raw writer")
		}
		c := http.NewResponseController(w)
		if _, _, err := c.Hijack(); !errors.Is(err, http.ErrNotSupported) {
			t.Errorf("Hijack: %v", err)
		}
		if err := c.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Errorf("SetWriteDeadline: %v", err)
		}
		w.WriteHeader(http.StatusCreated)
	})
	f.wantRan(f.post("k"), 201)
	f.wantReplayed(f.post("k"), 201)
}

// Informational responses reach the client at once. They are not replayed, and their headers are
// not in the final response.
func TestInformationalPass(t *testing.T) {
	hinted := make(chan struct{}, 1)
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		<-hinted
		w.Header().Del("Link")
		w.WriteHeader(http.StatusCreated)
	})
	r := f.request("POST", "/orders", "", "Idempotency-Key", "k")
	got := ""
	r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			got = h.Get("Link")
			hinted <- struct{}{}
			return nil
		},
	}))
	a, err := f.send(r)
	if err != nil {
		t.Fatal(err)
	}
	f.wantRan(a, 201)
	if got == "" || a.header.Get("Link") != "" {
		t.Errorf("hint has Link %q, answer %q", got, a.header.Get("Link"))
	}
	again, err := f.send(r.Clone(r.Context()))
	if err != nil {
		t.Fatal(err)
	}
	f.wantReplayed(again, 201)
	if len(hinted) > 0 || again.header.Get("Link") != "" {
		t.Error("the hint was replayed")
	}
}

// Responses without a body have none in the first response and in the replay.
func TestBodilessAnswers(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{Methods: []string{"HEAD", "POST"}}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(http.StatusNoContent)
			if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
				t.Errorf("write after 204: %v", err)
			}
		case "/304":
			w.Header().Set("ETag", `"1"`)
			w.WriteHeader(http.StatusNotModified)
		case "/empty":
		default:
			_, _ = io.WriteString(w, "hello")
		}
	})
	for _, row := range []struct {
		method, path string
		status       int
		length       string
	}{{"POST", "/204", 204, ""}, {"POST", "/304", 304, ""}, {"POST", "/empty", 200, "0"}, {"HEAD", "/head", 200, "5"}, {"HEAD", "/empty", 200, ""}} {
		first := f.do(row.method, row.path, "", "Idempotency-Key", "k")
		again := f.do(row.method, row.path, "", "Idempotency-Key", "k")
		f.wantRan(first, row.status)
		f.wantReplayed(again, row.status)
		for _, a := range []answer{first, again} {
			if a.body != "" || a.header.Get("Content-Length") != row.length || (row.status == 304) != (a.header.Get("ETag") == `"1"`) {
				t.Errorf("%s: got %q with %v", row.path, a.body, a.header)
			}
		}
	}
}

// The handler can read a chunked body, whose length is known by then, and its trailers.
func TestRequestBodyIsHandedOn(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(_ http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(b)) || string(b) != "chunked body" || r.Trailer.Get("X-Sum") != "42" {
			t.Errorf("read %q (%d), trailer %v, %v", b, r.ContentLength, r.Trailer, err)
		}
	})
	r := f.request("POST", "/", "", "Idempotency-Key", "k")
	r.Body, r.ContentLength = io.NopCloser(strings.NewReader("chunked body")), -1
	r.Trailer = http.Header{"X-Sum": {"42"}}
	if a, err := f.send(r); err != nil || a.status != 200 {
		t.Errorf("got %d, %v", a.status, err)
	}
}

// Trailers that were not announced, and header values that net/http cleans, are the same in the
// first response and in the replay.
func TestTrailersAndUncleanHeaders(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		w.Header().Set("Link", "a\r\nSet-Cookie: b")
		_, _ = io.WriteString(w, "<html>")
		w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
	})
	first, again := f.post("k"), f.post("k")
	f.wantRan(first, 200)
	f.wantReplayed(again, 200)
	for _, a := range []answer{first, again} {
		if a.body != "<html>" || a.trailer.Get("X-Sum") != "42" || a.header.Get("Content-Type") != "" || slices.Contains(a.header["Set-Cookie"], "b") {
			t.Errorf("got %q with %v and %v", a.body, a.header, a.trailer)
		}
	}
	if first.header.Get("Link") != again.header.Get("Link") {
		t.Errorf("Link is %q, then %q", first.header.Get("Link"), again.header.Get("Link"))
	}
}

// An invalid status panics as in net/http. A response of 101 is not recorded.
func TestUnusualStatus(t *testing.T) {
	f, fr := fronted(t, httpmw.IdempotentOptions{Store: httpmw.StoreAll}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/101" {
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		w.WriteHeader(99)
	}))
	if a, err := f.send(f.request("POST", "/99", "", "Idempotency-Key", "k")); err == nil {
		t.Errorf("got %d", a.status)
	}
	if p := <-fr.done; p == nil {
		t.Error("no panic")
	}
	for range 2 {
		if a := f.do("POST", "/101", "", "Idempotency-Key", "k"); a.replayed() || a.problem() != "" {
			t.Errorf("got %d, replayed %v", a.status, a.replayed())
		}
	}
}

// An outer http.MaxBytesReader limits the body too, and the response is 413.
func TestMaxBytesReader(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		next := idempotent(l, httpmw.IdempotentOptions{})(http.NotFoundHandler())
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 3)
			next.ServeHTTP(w, r)
		})
	})
	f.wantProblem(f.post("k"), 413, "body-too-large")
}

// Hijack fails, and the handler responds with 500. The key is free.
func TestRefusedHijackFreesTheKey(t *testing.T) {
	runs := 0
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		if runs++; runs == 3 {
			return
		}
		if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	f.wantRan(f.post("k"), 500)
	f.wantRan(f.post("k"), 500)
	f.wantRan(f.post("k"), 200)
	f.wantReplayed(f.post("k"), 200)
}

// Hijack fails, and the handler does not set a status. The 200 that net/http implies says nothing
// about the handler, so it is not recorded.
func TestImpliedStatusAfterRefusedHijack(t *testing.T) {
	for _, body := range []string{"", "cannot hijack"} {
		var runs, takeovers atomic.Int64
		f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
			if _, tookOver := guard.Attempt(r.Context(), httpmw.Key(r.Context())); tookOver {
				takeovers.Add(1)
			}
			if runs.Add(1) < 3 {
				_, _, _ = http.NewResponseController(w).Hijack()
				_, _ = io.WriteString(w, body)
				if body != "" {
					w.WriteHeader(http.StatusTeapot) // too late
				}
			}
		})
		for range 3 {
			f.wantRan(f.post("k"), 200)
		}
		f.wantReplayed(f.post("k"), 200)
		if takeovers.Load() != 2 {
			t.Errorf("%d takeovers", takeovers.Load())
		}
	}
}

// The channel of CloseNotify gets a value when the ctx of the handler ends. So the disconnect of
// the client counts only with CancelOnDisconnect.
func TestCloseNotify(t *testing.T) {
	for _, cancels := range []bool{false, true} {
		entered, leave := make(chan struct{}), make(chan struct{})
		f, fr := fronted(t, httpmw.IdempotentOptions{CancelOnDisconnect: cancels}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			notifier, ok := w.(interface{ CloseNotify() <-chan bool })
			if !ok {
				t.Error("no CloseNotify")
				return
			}
			gone := notifier.CloseNotify()
			close(entered)
			if cancels {
				<-gone
				return
			}
			<-leave
			select {
			case <-gone:
				t.Error("the handler was told of the disconnect")
			default:
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		first := f.start(ctx, "k")
		<-entered
		cancel()
		<-first
		<-fr.gone
		close(leave)
		<-fr.done
	}
}

// A compressed response is replayed byte for byte with its Content-Encoding.
func TestCompressedAnswer(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, strings.Repeat("hello ", 1000))
	_ = z.Close()
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("Vary", "Accept-Encoding")
		_, _ = w.Write(packed.Bytes())
	})
	for i := range 2 {
		a := f.do("POST", "/", "", "Idempotency-Key", "k", "Accept-Encoding", "gzip") // so that the client does not decompress the response
		if a.body != packed.String() || a.header.Get("Content-Encoding") != "gzip" || a.header.Get("Vary") == "" || a.replayed() != (i == 1) {
			t.Errorf("%d: got %d bytes with %v", i, len(a.body), a.header)
		}
	}
}
