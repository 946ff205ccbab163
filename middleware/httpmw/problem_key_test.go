package httpmw_test

import (
	"net/http"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// The Problem function of an API gets the key, for example for a log. Its response has no-store and
// no ETag, like that of WriteProblem.
func TestProblemKnowsTheKey(t *testing.T) {
	var seen httpmw.Problem
	var key string
	o := httpmw.IdempotentOptions{Mode: guard.AtMostOnce, Terms: lockcore.Terms{Wait: lockcore.NoWait}, MaxRequest: 10, Problem: func(w http.ResponseWriter, _ *http.Request, p httpmw.Problem) {
		seen = p
		w.WriteHeader(p.Status)
	}}
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		once := httpmw.Idempotent(l, tenant, o)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			key = httpmw.Key(r.Context())
			httpmw.Unknown(r.Context())
		}))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "public")
			w.Header().Set("Etag", "of something else")
			once.ServeHTTP(w, r)
		})
	})
	send := func(body string) answer {
		r := f.request("POST", "/orders", "", "Idempotency-Key", "k")
		r.Body, r.ContentLength = http.NoBody, 0
		if body != "" {
			r = f.request("POST", "/orders", body, "Idempotency-Key", "k")
		}
		a, err := f.send(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	send("")
	a := send("")
	if key == "" || seen.Key != key || seen.Type != httpmw.TypeOutcomeUnknown || a.header.Get("Cache-Control") != "no-store" || a.header.Get("Etag") != "" {
		t.Errorf("%+v with %v, want the key %s", seen, a.header, key)
	}
	if send("more than ten bytes"); seen.Key != key || seen.Type != httpmw.TypeBodyTooLarge {
		t.Errorf("%+v, want the key %s", seen, key)
	}
}
