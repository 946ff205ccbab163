package httpmw_test

import (
	"compress/gzip"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// described is a type of problem in problem.go or docs/problems.md.
type described struct {
	status string // one status, or several: "409, 423"
	again  bool   // a later repetition may succeed
}

// typesInCode returns the constants of problem.go with the facts of their comments, and the address
// to which they lead.
func typesInCode(t *testing.T) (types map[string]described, base string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "problem.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	types = map[string]described{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		switch v := spec.Values[0].(type) {
		case *ast.BasicLit:
			if spec.Names[0].Name == "typeBase" {
				base, _ = strconv.Unquote(v.Value)
			}
		case *ast.BinaryExpr:
			last, ok := v.Y.(*ast.BasicLit)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "Type") {
				return true
			}
			name, _ := strconv.Unquote(last.Value)
			status, _, _ := strings.Cut(strings.TrimSpace(spec.Comment.Text()), ":")
			types[name] = described{status, strings.Contains(spec.Comment.Text(), "repeat later")}
		}
		return true
	})
	return types, base
}

var (
	typeHeading = regexp.MustCompile(`(?m)^## (\S+)$`)
	typeRow     = regexp.MustCompile(`(?m)^\| \[(\S+)\]\(#(\S+)\) \| ([0-9, ]+) \| (yes|no) \|`)
)

// Each type leads to a heading of docs/problems.md with the same facts. The page describes no other
// type.
func TestTypesAreDescribed(t *testing.T) {
	types, base := typesInCode(t)
	_, page, _ := strings.Cut(base, "/blob/main/")
	text, err := os.ReadFile("../../" + strings.TrimSuffix(page, "#"))
	if err != nil || len(types) < 14 || httpmw.TypeBusy != base+"busy" {
		t.Fatalf("%d types, based on %q: %v", len(types), base, err)
	}
	headings, rows := map[string]bool{}, map[string]described{}
	for _, m := range typeHeading.FindAllStringSubmatch(string(text), -1) {
		headings[m[1]] = true
	}
	for _, m := range typeRow.FindAllStringSubmatch(string(text), -1) {
		if m[1] != m[2] {
			t.Errorf("the row of %s leads to %s", m[1], m[2])
		}
		rows[m[1]] = described{m[3], m[4] == "yes"}
	}
	for name, d := range types {
		if !headings[name] || rows[name] != d {
			t.Errorf("%s is %v in the code, %v in the table, has a heading: %v", name, d, rows[name], headings[name])
		}
	}
	if len(headings) != len(types) || len(rows) != len(types) {
		t.Errorf("%d types, %d headings, %d rows", len(types), len(headings), len(rows))
	}
}

// lying sets headers for another response before it calls next, as an outer middleware may. Some of
// them apply to any response.
func lying(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Length": "3", "Content-Type": "text/html", "Content-Disposition": "attachment", "Content-Language": "de",
			"Content-Location": "/old", "Content-Range": "bytes 0-2/3", "Accept-Ranges": "bytes", "Cache-Control": "max-age=600",
			"ETag": `"1"`, "Expires": "Thu, 01 Jan 2099 00:00:00 GMT", "Last-Modified": "Thu, 01 Jan 1970 00:00:00 GMT",
			"Location": "/old", "Trailer": "X-Sum", "Vary": "Origin", "Access-Control-Allow-Origin": "*",
		} {
			w.Header().Set(name, value)
		}
		next.ServeHTTP(w, r)
	})
}

// A problem is complete and not cacheable. Headers that an outer middleware set for the expected
// response are removed.
func TestProblemInheritsNoLies(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/once", lying(idempotent(l, httpmw.IdempotentOptions{Methods: []string{"GET", "HEAD"}})(http.NotFoundHandler())))
		mux.Handle("/alone", lying(httpmw.Exclusive(l, fixed(""), httpmw.ExclusiveOptions{})(http.NotFoundHandler())))
		return mux
	})
	for path, want := range map[string]string{"/once": "key-missing", "/alone": "resource-unnamed"} {
		a := f.do("GET", path, "")
		f.wantProblem(a, 400, want)
		if !json.Valid([]byte(a.body)) || a.header.Get("Content-Length") != strconv.Itoa(len(a.body)) {
			t.Errorf("%s: got %q of length %s", path, a.body, a.header.Get("Content-Length"))
		}
		for _, a := range []answer{a, f.do("HEAD", path, "")} {
			for name, want := range map[string]string{
				"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Vary": "Origin", "Access-Control-Allow-Origin": "*",
				"Content-Type": "application/problem+json", "Content-Disposition": "", "Content-Language": "", "Content-Location": "",
				"Content-Range": "", "Accept-Ranges": "", "ETag": "", "Expires": "", "Last-Modified": "", "Location": "",
			} {
				if got := a.header.Get(name); got != want {
					t.Errorf("%s: %s is %q, want %q", path, name, got, want)
				}
			}
			if len(a.trailer) > 0 {
				t.Errorf("%s: announces %v", path, a.trailer)
			}
		}
	}
}

type gzipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (g gzipped) Write(b []byte) (int, error) { return g.z.Write(b) }

// A compressor outside of the middleware has set Content-Encoding. The client can decode the
// problem.
func TestProblemThroughACompressor(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		h := httpmw.Exclusive(l, fixed(""), httpmw.ExclusiveOptions{})(http.NotFoundHandler())
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer func() { _ = z.Close() }()
			h.ServeHTTP(gzipped{w, z}, r)
		})
	})
	res, err := f.srv.Client().Do(f.request("GET", "/", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || !res.Uncompressed || !json.Valid(b) {
		t.Errorf("got %q, %v; uncompressed: %v", b, err, res.Uncompressed)
	}
}
