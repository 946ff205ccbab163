package httpmw_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// A handler calls NoEffect. The key is free, with any status and any options.
func TestNoEffect(t *testing.T) {
	for name, o := range map[string]httpmw.IdempotentOptions{
		"by default": {}, "all": {Store: httpmw.StoreAll}, "at most once": {Mode: guard.AtMostOnce}, "streamed": {MaxResponse: 1},
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			f := guarded(t, o, func(w http.ResponseWriter, r *http.Request) {
				if runs.Add(1) == 1 {
					httpmw.NoEffect(r.Context())
					w.WriteHeader(http.StatusConflict)
					_, _ = io.WriteString(w, "not now")
				}
			})
			f.wantRan(f.post("k"), 409)
			f.wantRan(f.post("k"), 200)
			f.wantReplayed(f.post("k"), 200)
		})
	}
	httpmw.NoEffect(t.Context()) // has no effect outside of a handler
}

// KeyOf returns the key for a scope, method, path and header. An operator can look it up and clear
// it.
func TestKeyOf(t *testing.T) {
	o := httpmw.IdempotentOptions{Mode: guard.AtMostOnce, Secret: []byte("pepper")}
	var runs atomic.Int64
	f := guarded(t, o, func(http.ResponseWriter, *http.Request) {
		if runs.Add(1) == 1 {
			panic(http.ErrAbortHandler)
		}
	})
	_, _ = f.send(f.request("POST", "/a%20b/orders?x=1", "body", "Idempotency-Key", `"a\"b"`, "X-Tenant", "a"))
	key, err := o.KeyOf("tenant:"+secretTenant("a"), "POST", "/a%20b/orders", secretKey(`a"b`))
	if err != nil {
		t.Fatal(err)
	}
	known, err := idempotency.Lookup(t.Context(), f.locks, key)
	if err != nil || known.State != lockcore.StateAbandoned {
		t.Errorf("%+v, %v", known, err)
	}
	if err := idempotency.Clear(t.Context(), f.locks, key, known); err != nil {
		t.Fatal(err)
	}
	f.wantRan(f.do("POST", "/a%20b/orders?x=1", "body", "Idempotency-Key", `"a\"b"`, "X-Tenant", "a"), 200)
	for _, bad := range [][4]string{
		{"tenant:a", "POST", "/", `"a`}, {"", "POST", "/", "a"}, {"tenant:a", "post", "/", "a"}, {"tenant:a", "POST", "/x?y=1", "a"}, {"tenant:a", "POST", "x", "a"},
	} {
		if key, err := o.KeyOf(bad[0], bad[1], bad[2], bad[3]); err == nil {
			t.Errorf("%q make the key %q", bad, key)
		}
	}
}

// The body was read before Idempotent. That is a mistake of the program: the response is 500,
// Misconfigured is reported once, and the handler does not run.
func TestBodyReadBefore(t *testing.T) {
	for name, read := range map[string]func(*http.Request){
		"form":      func(r *http.Request) { _ = r.FormValue("amount") },
		"multipart": func(r *http.Request) { _, _ = r.MultipartReader() },
		"read":      func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) },
	} {
		t.Run(name, func(t *testing.T) {
			var runs atomic.Int64
			f := newFixture(t, func(l *lockcore.Locker) http.Handler {
				next := idempotent(l, httpmw.IdempotentOptions{})(order(&runs))
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					read(r)
					next.ServeHTTP(w, r)
				})
			})
			contentType := "application/x-www-form-urlencoded"
			if name == "multipart" {
				contentType = "multipart/form-data; boundary=x"
			}
			for range 2 {
				f.wantProblem(f.do("POST", "/orders", "amount=499", "Idempotency-Key", "k", "Content-Type", contentType), 500, "internal")
			}
			if n := count[event.Misconfigured](f.events); n != 1 || runs.Load() != 0 {
				t.Errorf("%d Misconfigured, %d runs", n, runs.Load())
			}
		})
	}
}

// A handler outside of Idempotent calls FormValue for a request whose body is no form. The body is
// still compared.
func TestFormLookedForBefore(t *testing.T) {
	var runs atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		next := idempotent(l, httpmw.IdempotentOptions{})(order(&runs))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_ = r.FormValue("_method")
			next.ServeHTTP(w, r)
		})
	})
	f.wantRan(f.do("POST", "/orders?a=1", "{}", "Idempotency-Key", "k", "Content-Type", "application/json"), 201)
	f.wantProblem(f.do("POST", "/orders?a=1", "[]", "Idempotency-Key", "k", "Content-Type", "application/json"), 422, "key-reused")
}

// With a Secret the stored fingerprint cannot be computed from the request alone.
func TestSecretChangesTheFingerprint(t *testing.T) {
	stored := func(o httpmw.IdempotentOptions) string {
		f := guarded(t, o, func(http.ResponseWriter, *http.Request) {})
		f.wantRan(f.post("k"), 200)
		for _, key := range f.redis.Keys() {
			if strings.HasPrefix(key, "holdfast:2:o:") {
				return redistest.On(f.redis).Fields(key)["g"]
			}
		}
		t.Fatal("no key")
		return ""
	}
	plain := stored(httpmw.IdempotentOptions{})
	if one := stored(httpmw.IdempotentOptions{Secret: []byte("one")}); one == plain || len(one) != len(plain) || len(one) != 32 {
		t.Errorf("%x and %x", plain, one)
	}
	own := func(*http.Request, []byte) []byte { return []byte("the same") }
	if a, b := stored(httpmw.IdempotentOptions{Fingerprint: own}), stored(httpmw.IdempotentOptions{Fingerprint: own, Secret: []byte("one")}); a == b {
		t.Errorf("%x with and without a secret", a)
	}
}
