package httpmw_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// order returns a handler that responds with 201 and a number that grows with every run.
func order(runs *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		n := runs.Add(1)
		w.Header().Set("Location", fmt.Sprintf("/orders/%d", n))
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, "order %d of %x", n, sha256.Sum256(body))
	}
}

// orderText returns the nth response of order to a body. It has a digest of the body, because
// responses are recorded unchanged.
func orderText(n int, body string) string {
	return fmt.Sprintf("order %d of %x", n, sha256.Sum256([]byte(secret(body))))
}

// Each row is a second request. The first one is POST /orders?a=1&b=2 of tenant a with "body" and
// the key k.
// Shows: H1
func TestSecondRequest(t *testing.T) {
	const ran, replayed = "ran", "replayed"
	for _, row := range []struct {
		name         string
		method, path string
		body         string
		headers      []string
		status       int
		want         string // ran, replayed, or the type of a problem
	}{
		{"the same", "", "", "", []string{"Idempotency-Key", "k"}, 201, replayed},
		{"quoted key", "", "", "", []string{"Idempotency-Key", `"k"`}, 201, replayed},
		{"query in another order", "", "/orders?b=2&a=1", "", []string{"Idempotency-Key", "k"}, 201, replayed},
		{"other key", "", "", "", []string{"Idempotency-Key", "K"}, 201, ran},
		{"other tenant", "", "", "", []string{"Idempotency-Key", "k", "X-Tenant", "b"}, 201, ran},
		{"other path", "", "/refunds?a=1&b=2", "", []string{"Idempotency-Key", "k"}, 201, ran},
		{"other method", "PATCH", "", "", []string{"Idempotency-Key", "k"}, 201, ran},
		{"method that needs no key", "PUT", "", "", nil, 201, ran},
		{"other body", "", "", "bodY", []string{"Idempotency-Key", "k"}, 422, "key-reused"},
		{"other query", "", "/orders?a=1&b=3", "", []string{"Idempotency-Key", "k"}, 422, "key-reused"},
		{"other content type", "", "", "", []string{"Idempotency-Key", "k", "Content-Type", "text/csv"}, 422, "key-reused"},
		{"no key", "", "", "", nil, 400, "key-missing"},
		{"two keys", "", "", "", []string{"Idempotency-Key", "k", "Idempotency-Key", "k"}, 400, "key-malformed"},
		{"malformed key", "", "", "", []string{"Idempotency-Key", `"k`}, 400, "key-malformed"},
		{"empty key", "", "", "", []string{"Idempotency-Key", ""}, 400, "key-malformed"},
		{"long key", "", "", "", []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400, "key-malformed"},
		{"longest key", "", "", "", []string{"Idempotency-Key", strings.Repeat("k", 255)}, 201, ran},
		{"scope fails", "", "", "", []string{"Idempotency-Key", "k", "X-Tenant", "nobody"}, 401, "unauthorized"},
		{"scope is empty", "", "", "", []string{"Idempotency-Key", "k", "X-Tenant", "empty"}, 500, "internal"},
		{"large body", "", "", strings.Repeat("x", 101), []string{"Idempotency-Key", "l"}, 413, "body-too-large"},
		{"largest body", "", "", strings.Repeat("x", 100), []string{"Idempotency-Key", "l"}, 201, ran},
	} {
		t.Run(row.name, func(t *testing.T) {
			var runs atomic.Int64
			f := guarded(t, httpmw.IdempotentOptions{MaxRequest: len(secret(strings.Repeat("x", 100)))}, order(&runs))
			first := f.do("POST", "/orders?a=1&b=2", "body", "Idempotency-Key", "k")
			f.wantRan(first, 201)
			a := f.do(or(row.method, "POST"), or(row.path, "/orders?a=1&b=2"), or(row.body, "body"), row.headers...)
			switch row.want {
			case ran:
				f.wantRan(a, row.status)
			case replayed:
				f.wantReplayed(a, row.status)
				if a.body != first.body || a.header.Get("Location") != first.header.Get("Location") {
					t.Errorf("replayed %q at %q, want %q at %q", a.body, a.header.Get("Location"), first.body, first.header.Get("Location"))
				}
			default:
				f.wantProblem(a, row.status, row.want)
			}
			if want := map[bool]int64{true: 2, false: 1}[row.want == ran]; runs.Load() != want {
				t.Errorf("%d runs, want %d", runs.Load(), want)
			}
		})
	}
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// Each row has the statuses whose responses are recorded with these options, and the others, whose
// key is free afterwards.
func TestWhichAnswersAreRecorded(t *testing.T) {
	for _, row := range []struct {
		name     string
		o        httpmw.IdempotentOptions
		recorded []int
		freed    []int
	}{
		{"by default", httpmw.IdempotentOptions{}, []int{200, 201, 204, 301, 304, 400, 404, 409, 422}, []int{401, 403, 408, 425, 429, 500, 503}},
		{"all", httpmw.IdempotentOptions{Store: httpmw.StoreAll}, []int{200, 401, 429, 500, 599}, nil},
		{"success", httpmw.IdempotentOptions{Store: httpmw.StoreSuccess}, []int{200, 204}, []int{301, 400, 404, 500}},
		{"at most once", httpmw.IdempotentOptions{Mode: guard.AtMostOnce}, []int{200, 404, 500, 503}, []int{401, 429}},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := guarded(t, row.o, func(w http.ResponseWriter, r *http.Request) {
				var status int
				_, _ = fmt.Sscan(r.URL.Query().Get("status"), &status)
				w.WriteHeader(status)
			})
			f.srv.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
			for _, status := range append(row.recorded, row.freed...) {
				path := fmt.Sprint("/orders?status=", status)
				key := fmt.Sprint("k", status)
				f.wantRan(f.do("POST", path, "", "Idempotency-Key", key), status)
			}
			for _, status := range row.recorded {
				f.wantReplayed(f.do("POST", fmt.Sprint("/orders?status=", status), "", "Idempotency-Key", fmt.Sprint("k", status)), status)
			}
			for _, status := range row.freed {
				f.wantRan(f.do("POST", fmt.Sprint("/orders?status=", status), "", "Idempotency-Key", fmt.Sprint("k", status)), status)
			}
		})
	}
}

func TestOptionalPassesWithoutAKeyAndRefusesABadOne(t *testing.T) {
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{Optional: true}, order(&runs))
	f.wantRan(f.do("POST", "/orders", "body", "X-Tenant", "nobody"), 201)
	f.wantRan(f.do("POST", "/orders", "body"), 201)
	f.wantProblem(f.post(`"`), 400, "key-malformed")
	f.wantRan(f.post("k"), 201)
	f.wantReplayed(f.post("k"), 201)
}

func TestMethods(t *testing.T) {
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{Methods: []string{"PUT"}}, order(&runs))
	f.wantRan(f.do("POST", "/orders", ""), 201)
	f.wantProblem(f.do("PUT", "/orders", ""), 400, "key-missing")
}

func TestFingerprintIsReplaceable(t *testing.T) {
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{Fingerprint: func(_ *http.Request, body []byte) []byte { return body[:4] }}, order(&runs))
	f.wantRan(f.do("POST", "/orders", "body at 12:00", "Idempotency-Key", "k"), 201)
	f.wantReplayed(f.do("POST", "/orders", "body at 12:01", "Idempotency-Key", "k"), 201)
	f.wantProblem(f.do("POST", "/orders", "soul at 12:02", "Idempotency-Key", "k"), 422, "key-reused")
}

func TestProblemIsReplaceable(t *testing.T) {
	var seen httpmw.Problem
	f := guarded(t, httpmw.IdempotentOptions{Problem: func(w http.ResponseWriter, _ *http.Request, p httpmw.Problem) {
		seen = p
		w.WriteHeader(p.Status)
		_, _ = io.WriteString(w, "ours")
	}}, nil)
	a := f.do("POST", "/orders", "")
	if a.status != 400 || a.body != "ours" || seen.Type != httpmw.TypeKeyMissing || seen.Err == nil {
		t.Errorf("got %d %q for %+v", a.status, a.body, seen)
	}
}

// Refusals of the package reach the Observer.
func TestRefusalsAreCounted(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, nil)
	f.do("POST", "/", "")
	f.do("POST", "/", "", "Idempotency-Key", "k", "X-Tenant", "empty")
	f.do("POST", "/", "", "Idempotency-Key", "k", "X-Tenant", "empty")
	if n := count[event.NoKey](f.events); n != 1 {
		t.Errorf("%d NoKey, want 1", n)
	}
	if n := count[event.Misconfigured](f.events); n != 1 {
		t.Errorf("%d Misconfigured, want 1, because it is reported once", n)
	}
}

// The client's key, the scope and the body appear neither in Redis nor in events.
// Shows: H6
func TestNothingRawLeavesTheProcess(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(http.ResponseWriter, *http.Request) {})
	f.wantRan(f.post("k"), 200)
	calls := f.events.Calls()
	all := f.redis.Dump() + fmt.Sprintf("%#v %#v", calls, f.events.Events())
	if strings.Contains(all, canary) {
		t.Errorf("raw text in %s", all)
	}
	if len(calls) != 1 || !strings.HasPrefix(calls[0].Key, "http:") {
		t.Errorf("calls %+v", calls)
	}
}

func TestSecretChangesTheKeys(t *testing.T) {
	keyOf := func(secret string) string {
		var key string
		f := guarded(t, httpmw.IdempotentOptions{Secret: []byte(secret)}, func(_ http.ResponseWriter, r *http.Request) { key = httpmw.Key(r.Context()) })
		f.post("k")
		return key
	}
	plain, one, two := keyOf(""), keyOf("one"), keyOf("two")
	if plain == one || one == two || plain == "" {
		t.Errorf("keys are %q, %q and %q", plain, one, two)
	}
}

// Inside the handler the request's ctx holds the key that Key returns.
func TestTokenInsideTheHandler(t *testing.T) {
	f := guarded(t, httpmw.IdempotentOptions{}, func(w http.ResponseWriter, r *http.Request) {
		token, ok := guard.Token(r.Context(), httpmw.Key(r.Context()))
		_, _ = fmt.Fprint(w, token > 0, ok)
	})
	if a := f.post("k"); a.body != "true true" {
		t.Errorf("got %q", a.body)
	}
	if key := httpmw.Key(t.Context()); key != "" {
		t.Errorf("Key outside is %q", key)
	}
}
