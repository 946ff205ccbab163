package httpmw_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// form returns type and body of a form that Go's multipart.Writer has written, with a new boundary
// in each call.
func form(t *testing.T, content string) (contentType, body string) {
	t.Helper()
	var b strings.Builder
	w := multipart.NewWriter(&b)
	file, err := w.CreateFormFile("scan", "receipt.pdf")
	if err == nil {
		_, err = io.WriteString(file, content)
	}
	if err == nil {
		err = w.WriteField("amount", "100")
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return w.FormDataContentType(), b.String()
}

// A client sends a form again. The form has another boundary, and gets the recorded response. A form
// with another content, name, file name or type does not.
// Shows: H15
func TestRepeatedForm(t *testing.T) {
	runs := 0
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
		runs++
		file, head, err := r.FormFile("scan")
		if err != nil {
			t.Error(err)
			return
		}
		b, err := io.ReadAll(file)
		_, _ = fmt.Fprint(w, head.Filename, r.FormValue("amount"), len(b), err)
	})
	send := func(contentType, body string) answer {
		r := f.request("POST", "/", "", "Idempotency-Key", "k", "Content-Type", contentType)
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
		a, err := f.send(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := send(form(t, "content"))
	f.wantRan(first, 200)
	if again := send(form(t, "content")); again.body != first.body || first.body != "receipt.pdf1007 <nil>" {
		t.Errorf("first %q, then %d %q", first.body, again.status, again.body)
	} else {
		f.wantReplayed(again, 200)
	}
	contentType, body := form(t, "content")
	for _, change := range [][2]string{
		{"content\r", "contenT\r"}, {`name="scan"`, `name="scam"`}, {"receipt", "Receipt"}, {"octet-stream", "pdf"}, {"100", "1000"},
	} {
		f.wantProblem(send(contentType, strings.Replace(body, change[0], change[1], 1)), 422, "key-reused")
	}
	if runs != 1 {
		t.Errorf("%d runs", runs)
	}
}

// Each row is a request and a second one with the same key. The second one is a repeat or another
// request.
// Shows: H15
func TestFingerprintsOfMediaTypes(t *testing.T) {
	const repeat, other = true, false
	const data, mixed = "multipart/form-data; boundary=", "multipart/mixed; boundary="
	parts := func(boundary string, parts ...string) string {
		return "--" + boundary + "\r\n" + strings.Join(parts, "\r\n--"+boundary+"\r\n") + "\r\n--" + boundary + "--\r\n"
	}
	one, two := "Content-Disposition: form-data; name=\"a\"\r\n\r\n1", "Content-Disposition: form-data; name=\"b\"\r\n\r\n2"
	within := func(boundary, content string) string {
		return "Content-Disposition: form-data; name=\"files\"\r\nContent-Type: multipart/mixed; boundary=" + boundary + "\r\n\r\n" + parts(boundary, content)
	}
	packed := func(at int64) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.ModTime = time.Unix(at, 0)
		_, _ = io.WriteString(z, "{}")
		_ = z.Close()
		return b.String()
	}
	deep := func(boundary string, levels int) string { // every level has a boundary of its own
		content := "x"
		for n := range levels {
			content = within(fmt.Sprint(boundary, n), content)
		}
		return content
	}
	for _, row := range []struct {
		name         string
		type1, body1 string
		type2, body2 string
		want         bool
	}{
		{"JSON", "application/json", `{"a":1}`, "application/json", `{"a":1}`, repeat},
		{"JSON with spaces", "application/json", `{"a":1}`, "application/json", `{"a": 1}`, other},
		{"JSON in another order", "application/json", `{"a":1,"b":2}`, "application/json", `{"b":2,"a":1}`, other},
		{"JSON and a suffix type", "application/json", "{}", "application/merge-patch+json", "{}", other},
		{"JSON with a charset", "application/json", "{}", "application/json; charset=utf-8", "{}", other},
		{"another case of the type", "application/json", "{}", "Application/JSON", "{}", other},
		{"form in another order", "application/x-www-form-urlencoded", "a=1&b=2", "application/x-www-form-urlencoded", "b=2&a=1", other},
		{"form", "application/x-www-form-urlencoded", "a=1&b=2", "application/x-www-form-urlencoded", "a=1&b=2", repeat},
		{"text with a boundary", "text/plain; boundary=b1", "--b1--", "text/plain; boundary=b2", "--b2--", other},
		{"no type", "", "x", "", "x", repeat},
		{"bad type", "a/b/c;;", "x", "a/b/c;;", "x", repeat},
		{"gzip", "application/json", packed(1), "application/json", packed(1), repeat},
		{"gzip with another time", "application/json", packed(1), "application/json", packed(2), other},

		{"form-data", data + "b1", parts("b1", one, two), data + "b2", parts("b2", one, two), repeat},
		{"mixed", mixed + "b1", parts("b1", "\r\n1"), mixed + "b2", parts("b2", "\r\n1"), repeat},
		{"related", `multipart/related; start="<1>"; boundary=b1`, parts("b1", one), `multipart/related; start="<1>"; boundary=b2`, parts("b2", one), repeat},
		{"related with another start", `multipart/related; start="<1>"; boundary=b1`, parts("b1", one), `multipart/related; start="<2>"; boundary=b2`, parts("b2", one), other},
		{"any subtype", "Multipart/X-Own; Boundary=b1", parts("b1", one), "Multipart/X-Own; Boundary=b2", parts("b2", one), repeat},
		{"another subtype", data + "b1", parts("b1", one), mixed + "b2", parts("b2", one), other},
		{"quoted boundary", data + `"b 1"`, parts("b 1", one), data + `"b 2"`, parts("b 2", one), repeat},
		{"quoted and not", data + "b1", parts("b1", one), data + `"b2"`, parts("b2", one), other},
		{"escaped boundary", data + `"b\1"`, parts("b1", one), data + `"b\1"`, parts("b1", one), repeat},
		{"escaped boundaries", data + `"b\1"`, parts("b1", one), data + `"b\2"`, parts("b2", one), other},
		{"boundary like the type", data + "form", parts("form", one), data + "b2", parts("b2", one), repeat},
		{"parameters around", "multipart/form-data; charset=b1; boundary=b1; x=b1", parts("b1", one), "multipart/form-data; charset=b2; boundary=b2; x=b2", parts("b2", one), other},
		{"charset", data + "b1; charset=utf-8", parts("b1", one), data + "b2; charset=utf-8", parts("b2", one), repeat},
		{"another charset", data + "b1; charset=utf-8", parts("b1", one), data + "b2; charset=latin1", parts("b2", one), other},
		{"no boundary", "multipart/form-data", "x", "multipart/form-data", "x", repeat},
		{"empty boundary", data, "x", data, "x", repeat},
		{"boundary twice", data + "b1; boundary=b2", parts("b1", one), data + "b1; boundary=b2", parts("b1", one), repeat},

		{"parts in another order", data + "b1", parts("b1", one, two), data + "b2", parts("b2", two, one), other},
		{"part twice", data + "b1", parts("b1", one), data + "b2", parts("b2", one, one), other},
		{"parts twice", data + "b1", parts("b1", one, one), data + "b2", parts("b2", one, one), repeat},
		{"divided in another way", data + "b1", parts("b1", "A: b\r\n\r\nc"), data + "b2", parts("b2", "A: b\r\n\r", "\nc"), other},
		{"header in another case", data + "b1", parts("b1", "Content-Type: a/b\r\n\r\n1"), data + "b2", parts("b2", "content-type: a/b\r\n\r\n1"), other},
		{"headers in another order", data + "b1", parts("b1", "A: 1\r\nB: 2\r\n\r\n1"), data + "b2", parts("b2", "B: 2\r\nA: 1\r\n\r\n1"), other},
		{"transfer encoding", data + "b1", parts("b1", "Content-Transfer-Encoding: base64\r\n\r\nMQ=="), data + "b2", parts("b2", "\r\nMQ=="), other},
		{"header that parsers drop", data + "b1", parts("b1", one), data + "b2", parts("b2", "X: 1\r\n"+one), other},
		{"no parts", data + "b1", "--b1--", data + "b2", "--b2--", repeat},
		{"empty", data + "b1", "", data + "b2", "", repeat},
		{"empty and not", data + "b1", "", data + "b2", parts("b2", one), other},

		{"preamble", data + "b1", "p\r\n" + parts("b1", one), data + "b2", "p\r\n" + parts("b2", one), repeat},
		{"another preamble", data + "b1", "p\r\n" + parts("b1", one), data + "b2", "q\r\n" + parts("b2", one), other},
		{"epilogue", data + "b1", parts("b1", one) + "e", data + "b2", parts("b2", one) + "e", repeat},
		{"another epilogue", data + "b1", parts("b1", one) + "e", data + "b2", parts("b2", one) + "f", other},
		{"no final boundary", data + "b1", "--b1\r\n" + one, data + "b2", "--b2\r\n" + one, repeat},
		{"no final boundary and one", data + "b1", "--b1\r\n" + one, data + "b2", parts("b2", one), other},
		{"line feeds", data + "b1", "--b1\n\n1\n--b1--\n", data + "b2", "--b2\n\n1\n--b2--\n", repeat},
		{"spaces after boundaries", data + "b1", "--b1 \t\r\n\r\n1\r\n--b1-- \r\n", data + "b2", "--b2 \t\r\n\r\n1\r\n--b2-- \r\n", repeat},
		{"no boundary in the body", data + "b1", "malformed", data + "b1", "malformed", repeat},
		{"boundary in a line", data + "b1", parts("b1", "\r\nx--b1"), data + "b2", parts("b2", "\r\nx--b2"), other},
		{"boundary in a line, unchanged", data + "b1", parts("b1", "\r\nx--b1"), data + "b1", parts("b1", "\r\nx--b1"), repeat},
		{"boundary before a text", data + "b1", parts("b1", "\r\n--b1x"), data + "b2", parts("b2", "\r\n--b2x"), other},
		{"content of another boundary", data + "b1", parts("b1", "\r\nb1"), data + "b2", parts("b2", "\r\nb2"), other},

		{"nested", data + "b1", parts("b1", within("c1", one), two), data + "b2", parts("b2", within("c2", one), two), repeat},
		{"nested, other content", data + "b1", parts("b1", within("c1", one), two), data + "b2", parts("b2", within("c2", two), two), other},
		{"nested, same boundary inside", data + "b1", parts("b1", within("c", one)), data + "b2", parts("b2", within("c", one)), repeat},
		{"nested, folded", data + "b1", parts("b1", strings.Replace(within(`"c1"`, ""), "; b", ";\r\n b", 1)), data + "b2", parts("b2", strings.Replace(within(`"c2"`, ""), "; b", ";\r\n b", 1)), other},
		{"nested, malformed", data + "b1", parts("b1", within("c1", "x--c1")), data + "b2", parts("b2", within("c1", "x--c1")), repeat},
		{"deep", mixed + "bx", parts("bx", deep("b", 9)), mixed + "cx", parts("cx", deep("c", 9)), other},
		{"less deep", mixed + "bx", parts("bx", deep("b", 8)), mixed + "cx", parts("cx", deep("c", 8)), repeat},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := guarded(t, httpmw.IdempotentOptions{}, created)
			send := func(contentType, body string) answer {
				r := f.request("POST", "/", "", "Idempotency-Key", "k")
				r.Header[textproto.CanonicalMIMEHeaderKey("Content-Type")] = []string{contentType}
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
				a, err := f.send(r)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			f.wantRan(send(row.type1, row.body1), 201)
			if again := send(row.type2, row.body2); row.want == repeat {
				f.wantReplayed(again, 201)
			} else {
				f.wantProblem(again, 422, "key-reused")
			}
		})
	}
}

// No two bodies of one boundary have the same digest: of all that consist of at most five of these
// texts.
func TestDigestsOfMultipartBodiesDiffer(t *testing.T) {
	texts := []string{"--b", "--", "\r\n", "\n", " ", "Content-Type:", "multipart/x;boundary=\"c\"", "--c"}
	seen := map[string]string{}
	var visit func(body string, left int)
	visit = func(body string, left int) {
		if digest, ok := httpmw.CutDigest("multipart/x; boundary=b", body); ok {
			if old, found := seen[digest]; found && old != body {
				t.Fatalf("%q and %q have the same digest", old, body)
			}
			seen[digest] = body
		}
		if left > 0 {
			for _, text := range texts {
				visit(body+text, left-1)
			}
		}
	}
	visit("", 5)
	visit("--b\nContent-Type:multipart/x;boundary=\"c\"\n\n", 4)
	if len(seen) < 1000 {
		t.Errorf("only %d bodies were cut", len(seen))
	}
}

// Digests of bodies that differ only in their boundaries are equal, and no body panics.
func FuzzMultipart(f *testing.F) {
	f.Add("--b\r\nContent-Type: multipart/x; boundary=c\r\n\r\n--c\r\n\r\nx\r\n--c--\r\n--b--", "zz")
	f.Add("p\r\n--b \n--b--", "1")
	f.Fuzz(func(t *testing.T, body, boundary string) {
		digest, ok := httpmw.CutDigest("multipart/x; boundary=b", body)
		for _, c := range boundary {
			if c < '0' || c > 'z' || !(c >= 'a' || c <= '9') {
				return
			}
		}
		renamed := strings.ReplaceAll(body, "--b", "--"+boundary)
		if !ok || boundary == "" || strings.Count(renamed, "--"+boundary) != strings.Count(body, "--b") || strings.Contains(body, "boundary") {
			return
		}
		if again, ok := httpmw.CutDigest("multipart/x; boundary="+boundary, renamed); !ok || again != digest {
			t.Errorf("%q and %q have different digests, %v", body, renamed, ok)
		}
	})
}
