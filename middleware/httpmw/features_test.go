package httpmw_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// feature is a handler that uses a documented feature of net/http's ResponseWriter.
type feature struct {
	name   string
	method string                                  // default: POST
	expect bool                                    // the request has Expect: 100-continue
	lost   []string                                // headers that a replay does not have, or has anew
	plain  bool                                    // not through the compressor, which leaves a wrong Content-Length, also without Idempotent
	http1  bool                                    // not over HTTP/2, where the error is another one and comes later
	flush  bool                                    // Flush has no effect, so the framing and the detected type may differ
	serve  func(http.ResponseWriter, *notes) error // the error of its last call
}

// notes are what a handler sees of the writer.
type notes struct {
	r    *http.Request
	seen []string
}

func (n *notes) note(v ...any) { n.seen = append(n.seen, fmt.Sprint(v...)) }

func body(n int) string { return strings.Repeat("x", n) }

func features() []feature {
	writes := func(n int) func(http.ResponseWriter, *notes) error {
		return func(w http.ResponseWriter, _ *notes) error {
			_, err := io.WriteString(w, body(n))
			return err
		}
	}
	set := func(header, value string, n int) func(http.ResponseWriter, *notes) error {
		return func(w http.ResponseWriter, _ *notes) (err error) {
			w.Header().Set(header, value)
			if n > 0 {
				_, err = io.WriteString(w, body(n))
			}
			return err
		}
	}
	status := func(status int, headers ...string) func(http.ResponseWriter, *notes) error {
		return func(w http.ResponseWriter, _ *notes) error {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			_, err := io.WriteString(w, "x")
			return err
		}
	}
	const length, kind, flush = "Content-Length", "Content-Type", "flush"
	// parts writes its arguments, and flushes at each flush.
	parts := func(parts ...string) func(http.ResponseWriter, *notes) error {
		return func(w http.ResponseWriter, _ *notes) (err error) {
			for _, p := range parts {
				if p == flush {
					err = errors.Join(err, http.NewResponseController(w).Flush())
				} else {
					_, failed := io.WriteString(w, p)
					err = errors.Join(err, failed)
				}
			}
			return err
		}
	}
	return []feature{
		{name: "nothing", serve: func(http.ResponseWriter, *notes) error { return nil }},
		{name: "short body", serve: writes(5)},
		{name: "longest body whose length net-http sets", serve: writes(2048)},
		{name: "shortest body whose length it does not set", serve: writes(2049)},
		{name: "long body", serve: writes(100_000)},
		{name: "many short writes", serve: parts(slices.Repeat([]string{"0123456789"}, 500)...)},
		{name: "own length", plain: true, serve: set(length, "5", 5)},
		{name: "own length of a long body", plain: true, serve: set(length, "100000", 100_000)},
		{name: "length too large", plain: true, serve: set(length, "9", 5)},
		{name: "length too small", http1: true, plain: true, serve: set(length, "3", 5)},
		{name: "length of one of two writes", http1: true, plain: true, serve: func(w http.ResponseWriter, n *notes) error {
			w.Header().Set(length, "3")
			_, err := io.WriteString(w, "one")
			n.note(err)
			_, err = io.WriteString(w, "two")
			return err
		}},
		{name: "length that is no number", plain: true, serve: set(length, "many", 5)},
		{name: "length 0", plain: true, serve: set(length, "0", 0)},
		{name: "HEAD", method: "HEAD", serve: writes(5)},
		{name: "HEAD with a length", method: "HEAD", plain: true, serve: set(length, "5000", 0)},
		{name: "HEAD with a length and a body", method: "HEAD", plain: true, serve: set(length, "5", 5)},
		{name: "HEAD of a long body", method: "HEAD", serve: func(w http.ResponseWriter, n *notes) error {
			_ = writes(5000)(w, n) // fails over HTTP/2, undocumented
			return nil
		}},
		{name: "204", serve: status(http.StatusNoContent, kind, "text/csv")},
		{name: "204 with a length", plain: true, serve: status(http.StatusNoContent, length, "1")},
		{name: "304", plain: true, serve: status(http.StatusNotModified, "ETag", `"1"`, length, "7")},
		{name: "own type", serve: set(kind, "text/csv", 5)},
		{name: "type is detected", serve: parts("<htm", "l>")},
		{name: "type is detected after a flush", flush: true, serve: parts("<ht", flush, "ml>")},
		{name: "flush before the body", flush: true, serve: parts(flush, "<html>")},
		{name: "flush after the body", flush: true, serve: parts("<html>", flush, flush)},
		{name: "no type", serve: func(w http.ResponseWriter, _ *notes) error {
			w.Header()[kind] = nil
			_, err := io.WriteString(w, "<html>")
			return err
		}},
		{name: "encoded, without a type", serve: set("Content-Encoding", "x", 5)},
		{name: "encoded and flushed", flush: true, serve: func(w http.ResponseWriter, n *notes) error {
			w.Header().Set("Content-Encoding", "x")
			return parts("<html>", flush)(w, n)
		}},
		{name: "Date", lost: []string{"Date"}, serve: set("Date", "Thu, 01 Jan 1970 00:00:00 GMT", 5)},
		{name: "no Date", lost: []string{"Date"}, serve: func(w http.ResponseWriter, _ *notes) error {
			w.Header()["Date"] = nil
			return nil
		}},
		{name: "Connection", lost: []string{"Connection"}, serve: set("Connection", "close", 5)},
		{name: "Transfer-Encoding identity", lost: []string{"Connection", length, kind}, serve: set("Transfer-Encoding", "identity", 5)},
		{name: "Transfer-Encoding chunked", lost: []string{length, kind}, serve: set("Transfer-Encoding", "chunked", 5)},
		{name: "trailer", serve: func(w http.ResponseWriter, _ *notes) error {
			w.Header().Set("Trailer", "X-Sum, X-Not-Set")
			_, err := io.WriteString(w, "hello")
			w.Header().Set("X-Sum", "42")
			w.Header().Set("X-Not-Announced", "43")
			return err
		}},
		{name: "trailer and length", plain: true, serve: func(w http.ResponseWriter, _ *notes) error {
			w.Header().Set("Trailer", "X-Sum")
			w.Header().Set(length, "5")
			_, err := io.WriteString(w, "hello")
			w.Header().Set("X-Sum", "42")
			return err
		}},
		{name: "trailer with a prefix", flush: true, serve: func(w http.ResponseWriter, n *notes) error {
			err := parts("hello", flush)(w, n)
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
			return err
		}},
		{name: "trailer with a prefix, of a long body", plain: true, serve: func(w http.ResponseWriter, n *notes) error {
			err := writes(5000)(w, n)
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
			return err
		}},
		{name: "early hints", serve: func(w http.ResponseWriter, n *notes) error {
			w.Header().Set("Link", "</a.css>; rel=preload")
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusProcessing)
			w.Header().Del("Link")
			return writes(5)(w, n)
		}},
		{name: "two statuses", serve: func(w http.ResponseWriter, n *notes) error {
			w.Header().Set("X-First", "1")
			w.WriteHeader(http.StatusCreated)
			w.Header().Set("X-Second", "1")
			w.WriteHeader(http.StatusTeapot)
			return writes(5)(w, n)
		}},
		{name: "status after the body", serve: func(w http.ResponseWriter, n *notes) error {
			err := writes(5)(w, n)
			w.WriteHeader(http.StatusTeapot)
			return err
		}},
		{name: "status without a text", serve: status(299)},
		{name: "deadlines and full duplex", serve: func(w http.ResponseWriter, n *notes) error {
			c := http.NewResponseController(w)
			n.note(c.SetReadDeadline(time.Now().Add(time.Hour)), c.SetWriteDeadline(time.Now().Add(time.Hour)), c.EnableFullDuplex())
			return writes(5)(w, n)
		}},
		{name: "ReadFrom", serve: func(w http.ResponseWriter, n *notes) error {
			_, err := io.Copy(w, io.LimitReader(n.r.Body, 3))
			return err
		}},
		{name: "Pusher", serve: func(w http.ResponseWriter, n *notes) error {
			if p, ok := w.(http.Pusher); ok {
				_ = p.Push("/a.css", nil) // Go's client accepts none
			}
			return writes(5)(w, n)
		}},
		{name: "100-continue", expect: true, serve: func(w http.ResponseWriter, n *notes) error {
			_, err := io.Copy(w, n.r.Body)
			return err
		}},
	}
}

// Each documented feature of net/http's writer gives the response that the handler gives without
// Idempotent, and the same one as a replay: over HTTP/1.1 and HTTP/2, also through a compressor.
// Shows: H16
func TestFeaturesOfNetHTTP(t *testing.T) {
	locks, err := lockcore.NewMemory(lockcore.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close(context.Background()) }()
	scope := func(r *http.Request) (string, error) { return r.Proto + r.Header.Get("X-Compress"), nil }
	once := httpmw.Idempotent(locks, scope, httpmw.IdempotentOptions{Methods: []string{"POST", "HEAD"}, Store: httpmw.StoreAll})
	for _, compress := range []bool{false, true} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("compressed %v, HTTP-2 %v", compress, http2), func(t *testing.T) {
				alone, guarded := newFeatures(t, compress, http2, nil), newFeatures(t, compress, http2, once)
				for _, f := range features() {
					if compress && f.plain || http2 && f.http1 {
						continue
					}
					t.Run(f.name, func(t *testing.T) {
						compare(t, f, alone.ask(t, f), guarded.ask(t, f), guarded.ask(t, f))
					})
				}
			})
		}
	}
}

// featureServer serves the features at paths with their names.
type featureServer struct {
	*httptest.Server
	compress bool
	runs     chan []string // what the handler of a run has seen
}

func newFeatures(t *testing.T, compress, http2 bool, around func(http.Handler) http.Handler) *featureServer {
	t.Helper()
	s := &featureServer{compress: compress, runs: make(chan []string, 1)}
	byPath := map[string]feature{}
	for _, f := range features() {
		byPath["/"+f.name] = f
	}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := notes{r: r}
		n.note(byPath[r.URL.Path].serve(w, &n) != nil)
		s.runs <- n.seen
	})
	if around != nil {
		h = around(h)
	}
	if compress {
		h = compressed(h)
	}
	s.Server = httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = lookout.logger("server log") // some features are mistakes
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// featureAnswer is what client and handler have seen.
type featureAnswer struct {
	Status          int
	Header, Trailer http.Header
	Body            string
	Broken          bool
	Informational   []string
	Seen            []string // nil for a replay
}

func (s *featureServer) ask(t *testing.T, f feature) featureAnswer {
	t.Helper()
	method := f.method
	if method == "" {
		method = http.MethodPost
	}
	var a featureAnswer
	var mu sync.Mutex // for informational
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
		mu.Lock()
		defer mu.Unlock()
		a.Informational = append(a.Informational, fmt.Sprint(code, h))
		return nil
	}})
	r, err := http.NewRequestWithContext(ctx, method, s.URL+"/"+strings.ReplaceAll(f.name, " ", "%20"), strings.NewReader("request"))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", "k")
	r.Header.Set("X-Compress", fmt.Sprint(s.compress))
	if f.expect {
		r.Header.Set("Expect", "100-continue")
	}
	transport := s.Client().Transport.(*http.Transport) //nolint:errcheck,forcetypeassert // of httptest
	transport.ExpectContinueTimeout = time.Hour
	res, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	mu.Lock()
	defer mu.Unlock()
	a.Status, a.Header, a.Trailer, a.Body, a.Broken = res.StatusCode, res.Header, res.Trailer, string(b), err != nil
	if res.ContentLength >= 0 && method != http.MethodHead {
		a.Header.Set("Content-Length", fmt.Sprint(res.ContentLength))
	}
	if res.Header.Get("Idempotent-Replayed") == "" {
		a.Seen = <-s.runs
	}
	return a
}

func compare(t *testing.T, f feature, alone, first, again featureAnswer) {
	t.Helper()
	if again.Seen != nil {
		t.Fatalf("the handler ran again: %+v", again)
	}
	again.Header.Del("Idempotent-Replayed")
	again.Seen = first.Seen
	if len(again.Informational) > 0 && !f.expect {
		t.Errorf("replayed %v", again.Informational)
	}
	again.Informational = first.Informational
	date := func(a featureAnswer) bool { _, found := a.Header["Date"]; return found }
	if date(alone) != date(first) {
		t.Errorf("alone Date is %q, first %q", alone.Header["Date"], first.Header["Date"])
	}
	for _, a := range []*featureAnswer{&alone, &first, &again} {
		if !slices.Contains(f.lost, "Date") || a == &again {
			a.Header.Del("Date")
		}
		if f.flush {
			a.Header.Del("Content-Length")
			a.Header.Del("Content-Type")
		}
	}
	if !reflect.DeepEqual(alone, first) {
		t.Errorf("alone  %+v\nfirst  %+v", alone, first)
	}
	for _, h := range f.lost {
		first.Header.Del(h)
		again.Header.Del(h)
	}
	if !reflect.DeepEqual(first, again) {
		t.Errorf("first  %+v\nreplay %+v", first, again)
	}
}

// compressed is a compressor that leaves Content-Length to net/http.
func compressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		z := &compressor{ResponseWriter: w}
		next.ServeHTTP(z, r)
		if z.to != nil {
			_ = z.to.Close()
		}
	})
}

type compressor struct {
	http.ResponseWriter
	begun bool
	to    *gzip.Writer
}

func (c *compressor) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *compressor) WriteHeader(status int) {
	if c.begun = c.begun || status >= 200; status >= 200 && status != 204 && status != 304 && c.to == nil && c.Header().Get("Content-Encoding") == "" {
		c.Header().Set("Content-Encoding", "gzip")
		c.to = gzip.NewWriter(c.ResponseWriter)
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *compressor) Write(p []byte) (int, error) {
	if !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	if c.to == nil {
		return c.ResponseWriter.Write(p)
	}
	return c.to.Write(p)
}

func (c *compressor) FlushError() error {
	if !c.begun {
		c.WriteHeader(http.StatusOK)
	}
	if c.to != nil {
		_ = c.to.Flush()
	}
	return http.NewResponseController(c.ResponseWriter).Flush()
}
