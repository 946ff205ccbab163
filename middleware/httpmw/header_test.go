package httpmw_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Headers that the handler has set, changed or deleted are replayed. Headers that were set outside
// of Idempotent are set again for the replay. Headers that belong to one connection, caller or
// moment are not replayed.
// Shows: H7
func TestReplayedHeaders(t *testing.T) {
	kept := []string{"Content-Type", "Location", "Etag", "Cache-Control", "X-Receipt", "X-Own-Version", "Retry-After", "Server"}
	dropped := []string{
		"Set-Cookie", "Authorization", "Www-Authenticate", "Keep-Alive", "Proxy-Authenticate", "X-Csrf-Token", "X-Request-Id", "Traceparent",
		"X-B3-Spanid", "Access-Control-Allow-Origin", "X-Ratelimit-Remaining", "Ratelimit", "Ratelimit-Policy", "Age",
	}
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		next := idempotent(l, httpmw.IdempotentOptions{})(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, h := range append(kept, dropped...) {
				w.Header()[h] = []string{"1", "2"}
			}
			w.Header().Set("Date", "Thu, 01 Jan 1970 00:00:00 GMT")
			w.Header().Del("X-Front-Deleted")
			w.Header().Set("X-Front-Changed", "handler")
			w.Header().Add("Vary", "Accept")
			w.Header()["x-raw"] = []string{"a\r\nb "}
			w.Header()["bad name"] = []string{"1"}
		}))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("X-Front", r.Header.Get("X-Nth"))
			w.Header().Set("X-Front-Changed", r.Header.Get("X-Nth"))
			w.Header().Set("X-Front-Deleted", "1")
			w.Header().Set("Vary", "Origin")
			next.ServeHTTP(w, r)
		})
	})
	first := f.do("POST", "/", "", "Idempotency-Key", "k", "X-Nth", "1")
	again := f.do("POST", "/", "", "Idempotency-Key", "k", "X-Nth", "2")
	f.wantReplayed(again, 200)
	for _, h := range kept {
		if len(first.header[h]) != 2 || len(again.header[h]) != 2 {
			t.Errorf("%s: %v, replayed %v", h, first.header[h], again.header[h])
		}
	}
	for _, h := range dropped {
		if len(first.header[h]) != 2 || len(again.header[h]) != 0 {
			t.Errorf("%s: %v, replayed %v", h, first.header[h], again.header[h])
		}
	}
	for h, want := range map[string][2]string{
		"X-Front":         {"1", "2"}, // set outside of Idempotent: set again
		"X-Front-Changed": {"handler", "handler"},
		"X-Front-Deleted": {"", ""},
		"Vary":            {"Origin Accept", "Origin Accept"},
		"X-Raw":           {"a  b", "a  b"},
	} {
		if got := [2]string{strings.Join(first.header[h], " "), strings.Join(again.header[h], " ")}; got != want {
			t.Errorf("%s: %q, want %q", h, got, want)
		}
	}
	if again.header.Get("Date") == first.header.Get("Date") {
		t.Error("Date was replayed")
	}
}

// A header that Connection names is not replayed.
func TestConnectionHeadersAreNotReplayed(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "x-hop, Keep-Alive")
		w.Header().Set("X-Hop", "1")
		w.Header().Set("X-Kept", "1")
	})
	f.wantRan(f.post("k"), 200)
	a := f.post("k")
	f.wantReplayed(a, 200)
	if a.header.Get("X-Hop") != "" || a.header.Get("X-Kept") != "1" {
		t.Errorf("replayed %v", a.header)
	}
}

// OmitHeaders removes headers. OnlyHeaders removes all others, and can restore headers that are
// omitted by default. Both keep the headers that describe the body. They apply to trailers too.
func TestOmitAndOnlyHeaders(t *testing.T) {
	all := []string{"Content-Type", "Content-Encoding", "Location", "X-Receipt", "X-Request-Id", "Set-Cookie"}
	for _, row := range []struct {
		name string
		o    httpmw.IdempotentOptions
		want []string
	}{
		{"default", httpmw.IdempotentOptions{}, []string{"Content-Type", "Content-Encoding", "Location", "X-Receipt"}},
		{"omit", httpmw.IdempotentOptions{OmitHeaders: []string{"x-receipt"}}, []string{"Content-Type", "Content-Encoding", "Location"}},
		{"only", httpmw.IdempotentOptions{OnlyHeaders: []string{"x-receipt"}}, []string{"Content-Type", "Content-Encoding", "X-Receipt"}},
		{"only an omitted one", httpmw.IdempotentOptions{OnlyHeaders: []string{"X-Request-ID"}}, []string{"Content-Type", "Content-Encoding", "X-Request-Id"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := guarded(t, row.o, func(w http.ResponseWriter, _ *http.Request) {
				for _, h := range all {
					w.Header().Set(h, "1")
				}
				w.Header().Set(http.TrailerPrefix+"X-Receipt", "2")
			})
			f.wantRan(f.post("k"), 200)
			a := f.post("k")
			f.wantReplayed(a, 200)
			for _, h := range all {
				if got, want := a.header.Get(h) == "1", slices.Contains(row.want, h); got != want {
					t.Errorf("%s: replayed %v, want %v", h, got, want)
				}
			}
			if got, want := a.trailer.Get("X-Receipt") == "2", slices.Contains(row.want, "X-Receipt"); got != want {
				t.Errorf("the trailer: replayed %v, want %v", got, want)
			}
		})
	}
}

// The decoder does not check the usual names, so each of them must be valid in a record.
func TestUsualHeadersAreValid(t *testing.T) {
	for _, name := range httpmw.UsualHeaders {
		if http.CanonicalHeaderKey(name) != name || httpmw.NeverKept(name) {
			t.Errorf("%q is usual, but no record may have it", name)
		}
	}
}

// The size of recorded headers is limited. A response above the limit reaches the client unchanged,
// and is not recorded.
func TestHeadersAboveTheBound(t *testing.T) {
	for size, kept := range map[int]bool{60 << 10: true, 70 << 10: false} {
		runs := 0
		f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, _ *http.Request) {
			runs++
			w.Header().Set("X-Large", strings.Repeat("x", size))
			_, _ = io.WriteString(w, "hello")
		})
		first := f.post("k")
		f.wantRan(first, 200)
		if len(first.header.Get("X-Large")) != size || first.body != "hello" {
			t.Errorf("first answer has %d bytes and %q", len(first.header.Get("X-Large")), first.body)
		}
		if a := f.post("k"); kept {
			f.wantReplayed(a, 200)
		} else {
			f.wantProblem(a, 409, "not-replayable")
		}
		if runs != 1 {
			t.Errorf("%d runs, want 1", runs)
		}
	}
}

// The documentation of OmitHeaders names every header that is not recorded.
func TestOmittedHeadersAreDocumented(t *testing.T) {
	fset := token.NewFileSet()
	doc := ""
	options, err := parser.ParseFile(fset, "options.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(options, func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && len(f.Names) == 1 && f.Names[0].Name == "OmitHeaders" {
			doc = f.Doc.Text()
		}
		return true
	})
	names := 0
	header, err := parser.ParseFile(fset, "header.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(header, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != "refusedHeaders" && spec.Names[0].Name != "omittedHeaders" {
			return true
		}
		ast.Inspect(spec, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				name, err := strconv.Unquote(lit.Value)
				if err != nil || name != http.CanonicalHeaderKey(name) {
					t.Errorf("%s is not in canonical form, %v", lit.Value, err)
				}
				if names++; !strings.Contains(doc, name) {
					t.Errorf("the documentation of OmitHeaders lacks %s", name)
				}
			}
			return true
		})
		return false
	})
	if names < 40 {
		t.Errorf("found %d names only", names)
	}
}
