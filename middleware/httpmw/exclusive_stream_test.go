package httpmw_test

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// overBoth runs test with h behind Exclusive, over HTTP/1.1 and over HTTP/2. The key is account:42.
func overBoth(t *testing.T, o httpmw.ExclusiveOptions, h http.HandlerFunc, test func(t *testing.T, f *fixture)) {
	t.Helper()
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			f := unstarted(t, func(l *lockcore.Locker) http.Handler {
				return httpmw.Exclusive(l, fixed("account:42"), o)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Proto != proto {
						t.Errorf("the request came by %s", r.Proto)
					}
					h(w, r)
				}))
			})
			f.srv.EnableHTTP2 = proto == "HTTP/2.0"
			f.srv.StartTLS()
			test(t, f)
		})
	}
}

// The handler gets the server's ResponseWriter unchanged.
func TestExclusivePassesTheWriterOn(t *testing.T) {
	var outside, inside http.ResponseWriter
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		h := httpmw.Exclusive(l, fixed("k"), httpmw.ExclusiveOptions{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { inside = w }))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			outside = w
			h.ServeHTTP(w, r)
		})
	})
	f.wantRan(f.do("GET", "/", ""), 200)
	if inside == nil || inside != outside {
		t.Errorf("the handler got %T, want the server's %T", inside, outside)
	}
}

// Events reach the client while the handler runs, and the key is held until it returns.
func TestExclusiveEventStream(t *testing.T) {
	next := make(chan struct{})
	overBoth(t, httpmw.ExclusiveOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, event := range []string{"data: 1\n\n", "data: 2\n\n"} {
			_, _ = io.WriteString(w, event)
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("flush: %v", err)
			}
			<-next
		}
	}, func(t *testing.T, f *fixture) {
		res, err := f.srv.Client().Do(f.request("GET", "/", ""))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		lines := bufio.NewScanner(res.Body)
		for _, want := range []string{"data: 1", "", "data: 2", ""} {
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("read %q, want %q", lines.Text(), want)
			}
			if want == "" {
				f.wantHeld("account:42", true)
				next <- struct{}{}
			}
		}
	})
}

// An upload reaches the handler while it is sent, and the response reaches the client meanwhile.
// Nothing is buffered in between.
func TestExclusiveUploadStreams(t *testing.T) {
	const chunk, chunks = 64 << 10, 200
	overBoth(t, httpmw.ExclusiveOptions{}, func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Errorf("full duplex: %v", err)
		}
		buf := make([]byte, chunk)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				return
			}
			_, _ = w.Write(buf[:1])
			_ = c.Flush()
		}
	}, func(t *testing.T, f *fixture) {
		body, feed := io.Pipe()
		r := f.request("POST", "/", "")
		r.Body, r.ContentLength, r.GetBody = body, -1, nil
		echoes := make(chan byte)
		go func() { // ends with the answer
			defer close(echoes)
			res, err := f.srv.Client().Do(r)
			if err != nil {
				t.Errorf("no answer: %v", err)
				return
			}
			defer func() { _ = res.Body.Close() }()
			echo := make([]byte, 1)
			for _, err := io.ReadFull(res.Body, echo); err == nil; _, err = io.ReadFull(res.Body, echo) {
				echoes <- echo[0]
			}
		}()
		for i := range chunks {
			if _, err := feed.Write(bytes.Repeat([]byte{byte(i)}, chunk)); err != nil {
				t.Fatal(err)
			}
			if got := <-echoes; got != byte(i) {
				t.Fatalf("chunk %d came back as %d", i, got)
			}
		}
		_ = feed.Close()
		for range echoes {
			t.Error("more came back than was sent")
		}
	})
}

// unread is a body that fails the test if it is read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was sent")
	return 0, io.EOF
}

// A client sends Expect: 100-continue, and the key is busy. The request is refused without its
// body.
func TestExclusiveRefusesBeforeTheUpload(t *testing.T) {
	f, _ := alone(t, httpmw.ExclusiveOptions{Terms: noWait}, created)
	locktest.Hold(t, f.locks, "account:42")
	transport, ok := f.srv.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatalf("transport is %T", f.srv.Client().Transport)
	}
	transport.ExpectContinueTimeout = time.Hour
	r := f.request("POST", "/accounts/42", "", "Expect", "100-continue")
	r.Body, r.ContentLength, r.GetBody = io.NopCloser(unread{t}), 1<<20, nil
	a, err := f.send(r)
	if err != nil {
		t.Fatal(err)
	}
	f.wantProblem(a, 409, "busy")
}

// A handler hijacks its connection. The key is held until the handler returns.
func TestExclusiveHijack(t *testing.T) {
	f, fr := alone(t, httpmw.ExclusiveOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Errorf("hijack: %v", err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
		for err == nil {
			_ = rw.Flush()
			var line string
			line, err = rw.ReadString('\n')
			_, _ = rw.WriteString(strings.ToUpper(line))
		}
	})
	res, err := f.srv.Client().Do(f.request("GET", "/accounts/42", "", "Connection", "Upgrade", "Upgrade", "shout"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	conn, ok := res.Body.(io.ReadWriteCloser)
	if !ok || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %d with a %T", res.StatusCode, res.Body)
	}
	lines := bufio.NewReader(conn)
	for _, word := range []string{"a\n", "b\n"} {
		_, _ = io.WriteString(conn, word)
		if got, err := lines.ReadString('\n'); got != strings.ToUpper(word) {
			t.Errorf("got %q, %v", got, err)
		}
		f.wantHeld("account:42", true)
	}
	_ = conn.Close()
	if p := <-fr.done; p != nil {
		t.Errorf("panicked with %v", p)
	}
	f.wantHeld("account:42", false)
}

// A client closes an HTTP/2 stream. The ctx of its handler ends, and another stream of the same
// connection is not affected.
func TestExclusiveDisconnectOfAStream(t *testing.T) {
	f := unstarted(t, func(l *lockcore.Locker) http.Handler {
		return httpmw.Exclusive(l, fixed("account:42"), httpmw.ExclusiveOptions{Terms: patience})(http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hang" {
					_ = http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
	})
	f.srv.EnableHTTP2 = true
	f.srv.StartTLS()
	res, err := f.srv.Client().Do(f.request("GET", "/hang", ""))
	if err != nil {
		t.Fatal(err)
	}
	next := f.get(t.Context(), "/")
	<-f.events.waiting
	_ = res.Body.Close()
	if a := <-next; a.status != 200 {
		t.Errorf("got %d %q", a.status, a.body)
	}
}
