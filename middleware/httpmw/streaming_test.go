package httpmw_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// A response above MaxResponse is streamed completely and not recorded. A repetition is refused,
// and the handler does not run.
func TestLargeAnswerIsStreamedAndNotKept(t *testing.T) {
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{MaxResponse: 1000}, func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.WriteHeader(http.StatusCreated)
		size := 1000
		if r.URL.Path == "/large" {
			size = 1001
		}
		for range size {
			if n, err := io.WriteString(w, "x"); n != 1 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
		}
	})
	a := f.do("POST", "/large", "", "Idempotency-Key", "k")
	f.wantRan(a, 201)
	if len(a.body) != 1001 {
		t.Errorf("%d bytes", len(a.body))
	}
	f.wantProblem(f.do("POST", "/large", "", "Idempotency-Key", "k"), 409, "not-replayable")
	f.wantProblem(f.do("POST", "/large", "other", "Idempotency-Key", "k"), 422, "key-reused")
	f.wantRan(f.do("POST", "/exact", "", "Idempotency-Key", "k"), 201)
	f.wantReplayed(f.do("POST", "/exact", "", "Idempotency-Key", "k"), 201)
	if runs.Load() != 2 {
		t.Errorf("%d runs, want 2", runs.Load())
	}
}

// A streamed refusal with Retry-After frees its key, as one that is not streamed does.
func TestLargeRefusalWithRetryAfter(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{MaxResponse: 10}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, "more than ten bytes")
	})
	for range 2 {
		a := f.post("k")
		f.wantRan(a, 409)
		if a.header.Get("Retry-After") != "1" || a.body != "more than ten bytes" {
			t.Errorf("%v %q", a.header, a.body)
		}
	}
}

// Headers above the limit of a record are not kept. The first response has all of them.
func TestLargeHeadersAreNotKept(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{MaxResponse: 1}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Link", strings.Repeat("x", 70<<10))
	})
	a := f.post("k")
	f.wantRan(a, 200)
	if n := len(a.header.Get("Link")); n != 70<<10 {
		t.Errorf("Link has %d bytes", n)
	}
	f.wantProblem(f.post("k"), 409, "not-replayable")
}

// An event stream reaches the client while the handler runs.
func TestEventStream(t *testing.T) {
	next := make(chan struct{})
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, event := range []string{"data: 1\n\n", "data: 2\n\n"} {
			_, _ = io.WriteString(w, event)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	res, err := f.srv.Client().Do(f.request("POST", "/orders", "body", "Idempotency-Key", "k"))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(res.Body)
	for _, want := range []string{"data: 1", "", "data: 2", ""} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("read %q, want %q", lines.Text(), want)
		}
		if want == "" {
			next <- struct{}{}
		}
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	f.wantProblem(f.post("k"), 409, "not-replayable")
}

// A Flush comes before the response exceeds MaxResponse. It takes effect when the limit is
// exceeded. A later Flush takes effect at once.
func TestFlushAboveTheLimit(t *testing.T) {
	read := make(chan struct{})
	f := guarded(t, httpmw.IdempotentOptions{MaxResponse: 2}, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "a\n")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "b\n")
		<-read
		_ = http.NewResponseController(w).Flush()
		<-read
	})
	res, err := f.srv.Client().Do(f.request("POST", "/orders", "body", "Idempotency-Key", "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	for _, want := range []string{"a\n", "b\n"} {
		buf := make([]byte, 2)
		if _, err := io.ReadFull(res.Body, buf); err != nil || string(buf) != want {
			t.Errorf("read %q, %v; want %q", buf, err, want)
		}
		read <- struct{}{}
	}
}

// A client disconnects while a response is streamed. The handler's reads and writes succeed, it
// runs once, and a repetition is refused.
// Shows: H4
func TestDisconnectWhileStreaming(t *testing.T) {
	var runs atomic.Int64
	gone := make(chan struct{})
	f, fr := fronted(t, httpmw.IdempotentOptions{MaxResponse: 10}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		_, _ = io.WriteString(w, strings.Repeat("x", 11))
		_ = http.NewResponseController(w).Flush()
		<-gone
		for range 100 {
			if n, err := w.Write(make([]byte, 64<<10)); n != 64<<10 || err != nil {
				t.Errorf("write: %d, %v", n, err)
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
		}
		if n, err := io.Copy(io.Discard, r.Body); int(n) != len(secret("body")) || err != nil {
			t.Errorf("read %d bytes of the body, %v", n, err)
		}
	}))
	res, err := f.srv.Client().Do(f.request("POST", "/orders", "body", "Idempotency-Key", "k"))
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	<-fr.gone
	close(gone)
	<-fr.done
	f.wantProblem(f.post("k"), 409, "not-replayable")
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// A client disconnects before it has read the response. A repetition is replayed.
func TestDisconnectWithTheAnswerUnread(t *testing.T) {
	var runs atomic.Int64
	f, fr := fronted(t, httpmw.IdempotentOptions{}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		_, _ = w.Write(make([]byte, 1<<20)) // larger than the buffers between handler and client
	}))
	c := f.raw()
	if err := c.conn.SetReadBuffer(4096); err != nil {
		t.Error(err)
	}
	c.head(keyLine("k"), fmt.Sprint("Content-Length: ", len(secret("body"))))
	c.write("%s", secret("body"))
	if _, err := c.in.ReadByte(); err != nil {
		t.Error(err)
	}
	_ = c.conn.Close()
	<-fr.done
	if a := f.post("k"); !a.replayed() || len(a.body) != 1<<20 || runs.Load() != 1 {
		t.Errorf("got %d with %d bytes, replayed %v, %d runs", a.status, len(a.body), a.replayed(), runs.Load())
	}
}
