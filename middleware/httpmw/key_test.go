package httpmw_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
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
		{`a, b`, ""}, // two headers that a proxy has joined
		{`a,b`, ""},
		{`a, "b"`, ""},
		{`,`, ""},
		{`"a, b"`, "a, b"},
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

// The key comes only from the header that the options name, and ValidKey decides whether it is
// valid.
func TestKeyOptions(t *testing.T) {
	var runs atomic.Int64
	o := httpmw.IdempotentOptions{Header: "x-idempotency-key", ValidKey: httpmw.UUIDKey}
	var seen httpmw.Problem
	o.Problem = func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
		seen = p
		httpmw.WriteProblem(w, r, p)
	}
	f := newFixture(t, func(l *lockcore.Locker) http.Handler { return httpmw.Idempotent(l, tenant, o)(order(&runs)) })
	const id = "8e03978e-40d5-43dd-bc93-6894a57f9324"
	f.wantRan(f.do("POST", "/orders", "", "X-Idempotency-Key", id), 201)
	f.wantReplayed(f.do("POST", "/orders", "", "X-Idempotency-Key", `"`+id+`"`, "Idempotency-Key", "other"), 201)
	f.wantProblem(f.do("POST", "/orders", "", "Idempotency-Key", "k"), 400, "key-missing")
	if !strings.Contains(seen.Detail, "X-Idempotency-Key") {
		t.Errorf("detail %q does not name the header", seen.Detail)
	}
	f.wantProblem(f.do("POST", "/orders", "", "X-Idempotency-Key", "7"), 400, "key-malformed")
	if !strings.Contains(seen.Detail, "X-Idempotency-Key") || !strings.Contains(seen.Err.Error(), "not a UUID") {
		t.Errorf("detail %q, error %v", seen.Detail, seen.Err)
	}
	f.wantProblem(f.do("POST", "/orders", "", "X-Idempotency-Key", id+", "+id), 400, "key-malformed")
	if runs.Load() != 1 {
		t.Errorf("%d runs, want 1", runs.Load())
	}
	if _, err := o.KeyOf("tenant:a", "POST", "/orders", "7"); err == nil {
		t.Error("KeyOf takes a key that no request can have")
	}
	if key, err := o.KeyOf("tenant:a", "POST", "/orders", id); err != nil || key == "" {
		t.Errorf("KeyOf: %q, %v", key, err)
	}
}

// ValidKey is not called for a method that is not guarded.
func TestValidKeyOfOtherMethods(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{ValidKey: func(string) error { panic("called") }}, created)
	f.wantRan(f.do("PUT", "/orders", "", "Idempotency-Key", "k"), 201)
}

func TestUUIDKey(t *testing.T) {
	for key, want := range map[string]bool{
		"8e03978e-40d5-43dd-bc93-6894a57f9324":    true,
		"8E03978E-40D5-43DD-BC93-6894A57F9324":    true,
		"00000000-0000-0000-0000-000000000000":    true,
		"":                                        false,
		"8e03978e40d543ddbc936894a57f9324":        false,
		"{8e03978e-40d5-43dd-bc93-6894a57f9324}":  false,
		"8e03978e-40d5-43dd-bc93-6894a57f932":     false,
		"8e03978e-40d5-43dd-bc93-6894a57f93245":   false,
		"8e03978e-40d5-43dd-bc93-6894a57f932g":    false,
		"8e03978e-40d5-43dd-bc93_6894a57f9324":    false,
		"8e03978e-40d5-43dd-bc9346894a57f9324":    false,
		"8e03978e-40d5-43dd-bc93-6894a57f93\x104": false,
	} {
		if err := httpmw.UUIDKey(key); (err == nil) != want {
			t.Errorf("%q: %v", key, err)
		}
	}
}

// FuzzClientKey checks that a valid key is printable and short, and that its quoted form is the
// same key.
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
