package httpmw_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// Behind StripPrefix two routes see the same path /7. Their keys differ.
// Shows: H2
func TestStripPrefix(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		once := idempotent(l, httpmw.IdempotentOptions{})
		mux := http.NewServeMux()
		for _, name := range []string{"charge", "refund"} {
			mux.Handle("/"+name+"/", http.StripPrefix("/"+name, once(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = fmt.Fprintf(w, "%s of %s", name, r.URL.Path)
			}))))
		}
		return mux
	})
	for range 2 {
		for _, name := range []string{"charge", "refund"} {
			if a := f.do("POST", "/"+name+"/7", "", "Idempotency-Key", "k"); a.body != name+" of /7" {
				t.Errorf("%s got %q", name, a.body)
			}
		}
	}
}

// Idempotent is around a ServeMux or inside of it. The handler gets its path values, and outer
// handlers see the pattern.
func TestServeMux(t *testing.T) {
	for _, outside := range []bool{true, false} {
		var pattern string
		f := newFixture(t, func(l *lockcore.Locker) http.Handler {
			once := idempotent(l, httpmw.IdempotentOptions{})
			var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.PathValue("id")) })
			if !outside {
				h = once(h)
			}
			mux := http.NewServeMux()
			mux.Handle("POST /orders/{id}", h)
			h = mux
			if outside {
				h = once(h)
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				h.ServeHTTP(w, r)
				pattern = r.Pattern
			})
		})
		if a := f.do("POST", "/orders/7", "", "Idempotency-Key", "k"); a.body != "7" || pattern != "POST /orders/{id}" {
			t.Errorf("outside %v: got %d %q, pattern %q", outside, a.status, a.body, pattern)
		}
		f.wantReplayed(f.do("POST", "/orders/7", "", "Idempotency-Key", "k"), 200)
	}
}

// Idempotent is on one route twice, so a request would wait for itself. It gets 500 at once.
func TestMountedTwice(t *testing.T) {
	var runs atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		once := idempotent(l, httpmw.IdempotentOptions{})
		return once(once(order(&runs)))
	})
	f.wantProblem(f.post("k"), 500, "internal")
	if runs.Load() != 0 {
		t.Error("the handler ran")
	}
}

// One client key is used with similar paths, methods and tenants. No two of them share a key, and
// each is replayed.
// Shows: H2
func TestKeysNeverMeet(t *testing.T) {
	type place struct{ tenant, method, target string }
	places := []place{}
	for _, who := range []string{"a", "b", "a:b", "A"} {
		for _, method := range []string{"POST", "PATCH", "PUT"} {
			for _, target := range []string{
				"/orders", "/orders/", "//orders", "/Orders", "/orders/7", "/orders%2F7", "/orders%2f7", "/orders/%37", "/orders/7;v=1",
				"/orders/../orders", "/orders/./7", "/charge/orders/7", "/refund/orders/7",
			} {
				places = append(places, place{who, method, target})
			}
		}
	}
	var runs atomic.Int64
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		mux := http.NewServeMux() // it uses neither methods nor hosts
		h := idempotent(l, httpmw.IdempotentOptions{Methods: []string{"POST", "PATCH", "PUT"}})(order(&runs))
		mux.Handle("/charge/", http.StripPrefix("/charge", h))
		mux.Handle("/refund/", http.StripPrefix("/refund", h))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/charge/") || strings.HasPrefix(r.URL.Path, "/refund/") {
				mux.ServeHTTP(w, r)
			} else {
				h.ServeHTTP(w, r)
			}
		})
	})
	for round := range 2 {
		for i, p := range places {
			r := f.request(p.method, "/", "body", "Idempotency-Key", "k", "X-Tenant", p.tenant)
			r.URL.Opaque = "//" + f.srv.Listener.Addr().String() + p.target // without normalization
			a, err := f.send(r)
			if err != nil || a.status != 201 || a.body != orderText(i+1, "body") || a.replayed() != (round == 1) {
				t.Errorf("%v: got %d %q, replayed %v, %v", p, a.status, a.body, a.replayed(), err)
			}
		}
	}
	if n := runs.Load(); n != int64(len(places)) {
		t.Errorf("%d runs in %d places", n, len(places))
	}
}

// The host is not part of a key. Two hosts with one scope are one API, as behind a proxy. If a host
// identifies a tenant, the scope must contain it.
func TestHosts(t *testing.T) {
	send := func(f *fixture, host string) answer {
		r := f.request("POST", "/orders", "body", "Idempotency-Key", "k")
		r.Host = host
		a, err := f.send(r)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	var runs atomic.Int64
	f := guarded(t, httpmw.IdempotentOptions{}, order(&runs))
	f.wantRan(send(f, "one.example"), 201)
	f.wantReplayed(send(f, "two.example"), 201)

	f = newFixture(t, func(l *lockcore.Locker) http.Handler {
		return httpmw.Idempotent(l, func(r *http.Request) (string, error) {
			name, err := tenant(r)
			return r.Host + " " + name, err
		}, httpmw.IdempotentOptions{})(order(&runs))
	})
	f.wantRan(send(f, "one.example"), 201)
	f.wantRan(send(f, "two.example"), 201)
	f.wantReplayed(send(f, "one.example"), 201)
}
