package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// show -result prints a recorded response of httpmw: its status, its headers, and its body if that
// is text. Foreign text cannot control the terminal.
func TestShowResponse(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	l := locker(t, s.Client(t), "")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte("{}"))
	ok(t, z.Close())
	responses := map[string]func(http.ResponseWriter){
		"text": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Add("X-Note", "\x1b[31m")
			w.WriteHeader(http.StatusPaymentRequired)
			_, _ = w.Write([]byte("{\n\t\"id\": \"8\x1b[31m\"\n}\n"))
		},
		"binary": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "image/png\x1b")
			_, _ = w.Write([]byte("\x89PNG"))
		},
		"packed": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed.Bytes())
		},
		"empty": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNoContent) },
	}
	h := httpmw.Idempotent(l, func(*http.Request) (string, error) { return "acme", nil }, httpmw.IdempotentOptions{})(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { responses[r.Header.Get("Idempotency-Key")](w) }))
	for name, want := range map[string][]string{
		"text":   {"status 402 Payment Required", "header Content-Type: application/json", `header "X-Note: \x1b[31m"`, "body {", `body "    \"id\": \"8\x1b[31m\""`, "body }"},
		"binary": {"status 200 OK", `header "Content-Type: image/png\x1b"`, `body 4 bytes, "image/png\x1b"`},
		"packed": {"status 200 OK", "header Content-Encoding: gzip", "body 26 bytes, no Content-Type"},
		"empty":  {"status 204 No Content", "body 0 bytes, no Content-Type"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/charges", http.NoBody)
		r.Header.Set("Idempotency-Key", name)
		h.ServeHTTP(httptest.NewRecorder(), r)
		key, err := (httpmw.IdempotentOptions{}).KeyOf("acme", http.MethodPost, "/charges", name)
		ok(t, err)
		_, out, _ := call{}.run(t, "show", "-result", "-once", "-redis", s.Addr(), key)
		var got []string
		for line := range strings.Lines(out) {
			if label, text, _ := strings.Cut(strings.TrimSpace(line), " "); label == "status" || label == "header" || label == "body" {
				got = append(got, label+" "+strings.TrimSpace(text))
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: got\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		var k keys
		_, out, _ = call{}.run(t, "show", "-json", "-result", "-once", "-redis", s.Addr(), key)
		ok(t, json.Unmarshal([]byte(out), &k))
		if res := k.Keys[0].Result; res == nil || res.HTTP == nil || len(res.Data) == 0 || name == "text" && (res.HTTP.Status != 402 || !strings.HasPrefix(res.HTTP.Body, "{\n\t")) {
			t.Errorf("%s: %s", name, out)
		}
	}
}
