package httpmw_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// rawClient is a client that controls when each part of a request is sent.
type rawClient struct {
	t    *testing.T
	conn *net.TCPConn
	in   *bufio.Reader
}

func (f *fixture) raw() *rawClient {
	f.t.Helper()
	c, err := net.DialTCP("tcp", nil, f.srv.Listener.Addr().(*net.TCPAddr)) //nolint:errcheck,forcetypeassert // it listens on tcp
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = c.Close() })
	return &rawClient{f.t, c, bufio.NewReader(c)}
}

func (c *rawClient) write(format string, args ...any) {
	c.t.Helper()
	if _, err := fmt.Fprintf(c.conn, format, args...); err != nil {
		c.t.Fatal(err)
	}
}

// head sends the head of a POST of tenant a with the given lines.
func (c *rawClient) head(lines ...string) {
	c.t.Helper()
	lines = append(lines, "Host: x", "Authorization: Bearer "+canary+"-authorization", "", "")
	if !strings.Contains(lines[0], "X-Tenant") {
		lines = append([]string{"X-Tenant: " + secretTenant("a")}, lines...)
	}
	c.write("POST /orders HTTP/1.1\r\n%s", strings.Join(lines, "\r\n"))
}

// answer reads the next response, which may be an informational one.
func (c *rawClient) answer() answer {
	c.t.Helper()
	res, err := http.ReadResponse(c.in, &http.Request{Method: http.MethodPost})
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, res.Trailer, string(b)}
}

func keyLine(key string) string { return "Idempotency-Key: " + secretKey(key) }

// A client sends Expect: 100-continue. A refusal comes at once and without the body. Only a request
// that may run gets 100.
func TestExpectContinue(t *testing.T) {
	for _, row := range []struct {
		name    string
		lines   []string
		status  int
		problem string
	}{
		{"no key", []string{"Content-Length: 10"}, 400, "key-missing"},
		{"malformed key", []string{`Idempotency-Key: "k`, "Content-Length: 10"}, 400, "key-malformed"},
		{"unknown caller", []string{"X-Tenant: nobody", keyLine("k"), "Content-Length: 10"}, 401, "unauthorized"},
		{"no scope", []string{"X-Tenant: empty", keyLine("k"), "Content-Length: 10"}, 500, "internal"},
		{"too large", []string{keyLine("k"), "Content-Length: 101"}, 413, "body-too-large"},
	} {
		f := guarded(t, httpmw.IdempotentOptions{MaxRequest: 100}, func(http.ResponseWriter, *http.Request) { t.Errorf("%s: ran", row.name) })
		sent := f.sent.Load()
		c := f.raw()
		c.head(append(row.lines, "Expect: 100-continue")...)
		f.wantProblem(c.answer(), row.status, row.problem)
		if n := f.sent.Load() - sent; n != 0 {
			t.Errorf("%s: %d writes to Redis", row.name, n)
		}
	}

	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{MaxRequest: 100}, order(&runs))
	for i := range 2 {
		c := f.raw()
		c.head(keyLine("k"), "Content-Length: "+fmt.Sprint(len(secret("body"))), "Expect: 100-continue")
		if a := c.answer(); a.status != http.StatusContinue {
			t.Fatalf("got %d, want 100", a.status)
		}
		c.write("%s", secret("body"))
		a := c.answer()
		if a.status != 201 || a.body != orderText(1, "body") || a.replayed() != (i == 1) {
			t.Errorf("%d: got %d %q, replayed %v", i, a.status, a.body, a.replayed())
		}
	}
}

// A client sends its body slowly. No command is sent meanwhile, and another request with the same
// key runs.
// Shows: H9
func TestSlowBodyHoldsNothing(t *testing.T) {
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{}, order(&runs))
	body := secret("body")
	before := f.sent.Load()
	c := f.raw()
	c.head(keyLine("k"), "Content-Length: "+fmt.Sprint(len(body)), "Expect: 100-continue")
	if a := c.answer(); a.status != http.StatusContinue { // the middleware reads the body now
		t.Fatalf("got %d, want 100", a.status)
	}
	c.write("%s", body[:3])
	if n := f.sent.Load() - before; n != 0 {
		t.Errorf("%d writes to Redis before the body was there", n)
	}
	f.wantRan(f.post("k"), 201)
	c.write("%s", body[3:])
	f.wantReplayed(c.answer(), 201)
	if runs.Load() != 1 {
		t.Errorf("%d runs", runs.Load())
	}
}

// A client disconnects within its body. No command is sent, and its repetition runs.
func TestBrokenRequestBody(t *testing.T) {
	for name, part := range map[string]string{
		"length": "Content-Length: 100\r\n\r\n" + secret("bod"), "chunked": "Transfer-Encoding: chunked\r\n\r\n64\r\n" + secret("bod"),
		"between chunks": "Transfer-Encoding: chunked\r\n\r\n3\r\nbod\r\n",
	} {
		var runs atomic.Int64
		f, fr := fronted(t, httpmw.IdempotentOptions{}, order(&runs))
		before := f.sent.Load()
		c := f.raw()
		c.write("POST /orders HTTP/1.1\r\nHost: x\r\nX-Tenant: %s\r\n%s\r\n%s", secretTenant("a"), keyLine("k"), part)
		if err := c.conn.CloseWrite(); err != nil {
			t.Error(err)
		}
		f.wantProblem(c.answer(), 400, "body-unreadable")
		<-fr.done
		if n := f.sent.Load() - before; n != 0 || runs.Load() != 0 {
			t.Errorf("%s: %d writes to Redis, %d runs", name, n, runs.Load())
		}
		f.wantRan(f.post("k"), 201)
	}
}

// MaxRequest bounds the bytes of the body, with and without a Content-Length.
func TestBodyLimit(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{MaxRequest: 1000}, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprint(w, n, err)
	})
	for _, chunked := range []bool{false, true} {
		for _, size := range []int{999, 1000, 1001, 100_000} {
			body := strings.Repeat("x", size-len(secret("x"))+1)
			r := f.request("POST", "/", body, "Idempotency-Key", fmt.Sprint(chunked, size))
			if chunked {
				r.ContentLength = -1
			}
			a, err := f.send(r)
			if err != nil {
				t.Fatal(err)
			}
			if size > 1000 {
				f.wantProblem(a, 413, "body-too-large")
			} else if f.wantRan(a, 200); a.body != fmt.Sprint(size, error(nil)) {
				t.Errorf("chunked %v, %d bytes: the handler read %q", chunked, size, a.body)
			}
		}
	}
}

// The trailers of a chunked request reach the handler, also those that are not announced.
func TestRequestTrailers(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%d %v %s %s", n, err, r.Trailer.Get("X-Sum"), r.Trailer.Get("X-More"))
	})
	c := f.raw()
	c.head(keyLine("k"), "Transfer-Encoding: chunked", "Trailer: X-Sum")
	c.write("6\r\nchunke\r\n6\r\nd body\r\n0\r\nX-Sum: 42\r\nX-More: 43\r\n\r\n")
	if a := c.answer(); a.status != 200 || a.body != "12 <nil> 42 43" {
		t.Errorf("got %d %q", a.status, a.body)
	}
}

// A client disconnects before the handler reads the body. The handler still gets the whole body,
// and its response is recorded.
func TestDisconnectBeforeTheBodyIsRead(t *testing.T) {
	var runs atomic.Int64
	entered, gone := make(chan struct{}, 1), make(chan struct{})
	f, fr := fronted(t, httpmw.IdempotentOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-gone
		order(&runs)(w, r)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	first := f.start(ctx, "k")
	<-entered
	cancel()
	<-first
	<-fr.gone
	close(gone)
	<-fr.done
	a := f.post("k")
	f.wantReplayed(a, 201)
	if a.body != orderText(1, "body") || runs.Load() != 1 {
		t.Errorf("got %q, %d runs", a.body, runs.Load())
	}
}

// A connection is used again after a replay, and after a refusal of a request with a small body.
func TestConnectionIsUsedAgain(t *testing.T) {
	var runs atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler { return idempotent(l, httpmw.IdempotentOptions{})(order(&runs)) })
	c := f.raw()
	for i, line := range []string{keyLine("k"), keyLine("k"), "X-No: key", keyLine("k2")} {
		c.head(line, fmt.Sprint("Content-Length: ", len(secret("body"))))
		c.write("%s", secret("body"))
		if a := c.answer(); a.status != []int{201, 201, 400, 201}[i] || a.replayed() != (i == 1) {
			t.Errorf("%d: got %d %q", i, a.status, a.body)
		}
	}
}
