package httpmw_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

func TestClientKey(t *testing.T) {
	for _, row := range []struct {
		header string
		want   string // empty: refused
	}{
		{`k`, "k"},
		{`"k"`, "k"},
		{`8e03978e-40d5-43dd-bc93-6894a57f9324`, "8e03978e-40d5-43dd-bc93-6894a57f9324"},
		{`a b`, "a b"},
		{`a"b`, `a"b`},
		{`"a\"b\\c"`, `a"b\c`},
		{`a\b`, `a\b`},
		{`~`, `~`},
		{``, ""},
		{`""`, ""},
		{`"`, ""},
		{`"a`, ""},
		{`"a\"`, ""},
		{`"a\`, ""},
		{`"a\b"`, ""},
		{`"a"b`, ""},
		{`"a", "b"`, ""},
		{`"a";p=1`, ""},
		{"a\x00b", ""},
		{"a\tb", ""},
		{"a\r\nb", ""},
		{"\"a\nb\"", ""},
		{"a\x7f", ""},
		{"sch\u00f6n", ""},
		{strings.Repeat("k", 255), strings.Repeat("k", 255)},
		{strings.Repeat("k", 256), ""},
		{`"` + strings.Repeat("k", 255) + `"`, strings.Repeat("k", 255)},
		{`"` + strings.Repeat("k", 256) + `"`, ""},
		{strings.Repeat("k", 1<<20), ""},
	} {
		got, err := httpmw.ClientKey(http.Header{"Idempotency-Key": {row.header}})
		if got != row.want || (err == nil) != (row.want != "") {
			t.Errorf("%.40q: got %.40q, %v; want %.40q", row.header, got, err, row.want)
		}
	}
	if _, err := httpmw.ClientKey(http.Header{"Idempotency-Key": {"a", "a"}}); err == nil {
		t.Error("two headers are a key")
	}
	if _, err := httpmw.ClientKey(http.Header{}); err == nil {
		t.Error("no header is a key")
	}
}

// A key that is read is printable and short, and its quoted form is the same key.
func FuzzClientKey(f *testing.F) {
	f.Add("k")
	f.Add(`"a\"b"`)
	f.Fuzz(func(t *testing.T, s string) {
		key, err := httpmw.ClientKey(http.Header{"Idempotency-Key": {s}})
		if err != nil {
			if key != "" {
				t.Errorf("%q: both %q and %v", s, key, err)
			}
			return
		}
		if key == "" || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%q is the key %q", s, key)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := httpmw.ClientKey(http.Header{"Idempotency-Key": {quoted}}); again != key || err != nil {
			t.Errorf("%q quoted is %q, %v; want %q", s, again, err, key)
		}
	})
}
