package httpmw_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Queries whose parsed names have their values in different orders are different requests, also if
// a name is escaped.
func TestEscapedNamesInAQuery(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, created)
	f.wantRan(f.do("POST", "/orders?amount=1&%61mount=1000", "b", "Idempotency-Key", "k"), 201)
	f.wantProblem(f.do("POST", "/orders?%61mount=1000&amount=1", "b", "Idempotency-Key", "k"), 422, "key-reused")
	f.wantReplayed(f.do("POST", "/orders?amount=1&%61mount=1000", "b", "Idempotency-Key", "k"), 201)
}

// Request targets without a path have different keys. The absolute form of a target has the same
// key as its path.
func TestRequestTargets(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, created)
	seen := map[string]string{}
	for _, target := range []string{"/a", "/a?", "/", "//a", "/a%2Fb", "x:charge7", "x:refund8", "http://h/a"} {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", f.srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: h\r\nX-Tenant: %s\r\nIdempotency-Key: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
			target, secretTenant("a"), secretKey("k"))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		_ = conn.Close()
		seen[target] = res.Header.Get("Idempotent-Replayed")
		if want := map[string]string{"/a?": "true", "http://h/a": "true"}[target]; seen[target] != want || res.StatusCode != http.StatusCreated {
			t.Errorf("%s: %d, replayed %q, want %q", target, res.StatusCode, seen[target], want)
		}
	}
}

// Headers that the handler wrote with another case are recorded too.
func TestUnusualCaseOfHeaders(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["ETag"] = []string{`"1"`}
		w.Header()["content-type"] = []string{"application/json"}
		_, _ = io.WriteString(w, "{}")
	})
	first, again := f.post("k"), f.post("k")
	for _, name := range []string{"Etag", "Content-Type"} {
		if first.header.Get(name) == "" || first.header.Get(name) != again.header.Get(name) {
			t.Errorf("%s: %q, then %q", name, first.header.Get(name), again.header.Get(name))
		}
	}
}

// A trailer that would change the framing of the response is dropped. The response and its other
// trailers are kept.
func TestTrailersThatFrame(t *testing.T) {
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Trailer", "a b"} {
		f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "hello")
			w.Header()[http.TrailerPrefix+name] = []string{"5"}
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
		})
		for range 2 {
			if a := f.post("k"); a.body != "hello" || a.trailer.Get("X-Sum") != "42" || len(a.trailer) != 1 {
				t.Errorf("%s: %q with %v", name, a.body, a.trailer)
			}
		}
	}
}

// Headers above 64 KiB, or too many values, cannot be encoded. A record with more values than its
// limit does not decode.
func TestBoundOfRecordedHeaders(t *testing.T) {
	many := httpmw.Recorded{Status: 200, Header: http.Header{"Link": make([]string, 70_000)}, Trailer: http.Header{}}
	if _, err := httpmw.Encode(many); err == nil {
		t.Error("70,000 values are recorded")
	}
	long := httpmw.Recorded{Status: 200, Header: http.Header{"Link": {strings.Repeat("x", 64<<10)}}, Trailer: http.Header{}}
	if _, err := httpmw.Encode(long); err == nil {
		t.Error("64 KiB and a name are recorded")
	}
	most := httpmw.Recorded{Status: 200, Header: http.Header{"Link": {strings.Repeat("x", 64<<10-11)}}, Trailer: http.Header{}, Body: make([]byte, 1<<20)}
	b, err := httpmw.Encode(most)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := httpmw.Decode(b); err != nil || len(got.Body) != 1<<20 || got.Header.Get("Link") != most.Header.Get("Link") {
		t.Errorf("%d bytes, %v", len(got.Body), err)
	}
	forged := binary.AppendUvarint(binary.BigEndian.AppendUint16([]byte{1, 1}, 200), 1)
	forged = append(append(forged, 1, 'A'), binary.AppendUvarint(nil, 1<<20)...)
	forged = append(forged, make([]byte, 1<<20+3)...)
	if _, err := httpmw.Decode(forged); err == nil {
		t.Error("a million values are read")
	}
}

// A status that no recorded response can have is not encoded.
func TestBoundOfStatus(t *testing.T) {
	for _, status := range []int{0, 101, 199, 1000} {
		if _, err := httpmw.Encode(httpmw.Recorded{Status: status}); err == nil {
			t.Errorf("%d is recorded", status)
		}
	}
}
