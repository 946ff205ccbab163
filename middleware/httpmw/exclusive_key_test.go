package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// The result of a KeyFunc decides whether a request runs, runs unguarded, or is refused and
// counted. The text of its error does not reach the client, and an error such as ErrBusy in it has
// no special meaning.
func TestExclusiveKeys(t *testing.T) {
	long := strings.Repeat("x", 600)
	for name, row := range map[string]struct {
		key    guard.Key
		err    error
		status int
		noKey  int
	}{
		"a key":            {guard.Key{ID: "canary"}, nil, 200, 0},
		"a class":          {guard.Key{Class: "canary", ID: "1"}, nil, 200, 0},
		"no guard needed":  {guard.Key{}, fmt.Errorf("a GET: %w", guard.Unguarded), 200, 0},
		"an error":         {guard.Key{ID: "held"}, errors.New("canary"), 400, 1},
		"an error as ours": {guard.Key{ID: "held"}, errors.Join(lockcore.ErrBusy, lockcore.ErrUnavailable, context.Canceled), 400, 1},
		"an empty key":     {guard.Key{Class: "canary"}, nil, 400, 1},
		"too long a key":   {guard.Key{ID: long}, nil, 400, 1},
		"a colon":          {guard.Key{Class: "can:ary", ID: "1"}, nil, 400, 1},
		"too long a class": {guard.Key{Class: long[:129], ID: "1"}, nil, 400, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var runs int
			f := newFixture(t, func(l *lockcore.Locker) http.Handler {
				key := func(*http.Request) (guard.Key, error) { return row.key, row.err }
				return httpmw.Exclusive(l, key, httpmw.ExclusiveOptions{})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ }))
			})
			a := f.do("GET", "/", "")
			if a.status != row.status || runs != map[int]int{200: 1, 400: 0}[row.status] || strings.Contains(a.body, "canary") {
				t.Errorf("got %d %q, %d runs", a.status, a.body, runs)
			}
			if row.status == 400 {
				f.wantProblem(a, 400, "resource-unnamed")
			}
			if n := count[event.NoKey](f.events); n != row.noKey {
				t.Errorf("%d NoKey, want %d", n, row.noKey)
			}
		})
	}
}

// The KeyFunc returns guard.Unguarded. The request runs, although the key has another holder.
func TestExclusiveRunsUnguarded(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		account := guard.Key{Class: "account", ID: "42"}
		key := func(r *http.Request) (guard.Key, error) {
			if r.Method == http.MethodGet {
				return account, guard.Unguarded
			}
			return account, nil
		}
		return httpmw.Exclusive(l, key, httpmw.ExclusiveOptions{Terms: noWait})(http.HandlerFunc(created))
	})
	locktest.Hold(t, f.locks, "account:42")
	f.wantRan(f.do("GET", "/", ""), 201)
	f.wantProblem(f.do("POST", "/", ""), 409, "busy")
}

// Terms.Name defaults to the Class of the key. For a key without a Class it is "http".
func TestExclusiveIsNamedByClass(t *testing.T) {
	for _, row := range []struct{ key, name, want string }{
		{"account:42", "", "account"}, {"42", "", "http"}, {"account:42", "mine", "mine"}, {"42", "mine", "mine"},
	} {
		f := newFixture(t, func(l *lockcore.Locker) http.Handler {
			o := httpmw.ExclusiveOptions{Terms: lockcore.Terms{Name: row.name}}
			return httpmw.Exclusive(l, fixed(row.key), o)(http.HandlerFunc(created))
		})
		f.wantRan(f.do("GET", "/", ""), 201)
		if got := f.events.Calls(); len(got) != 1 || got[0].Name != row.want {
			t.Errorf("%+v: calls %+v", row, got)
		}
	}
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		return httpmw.Exclusive(l, fixed("account:"), httpmw.ExclusiveOptions{})(http.HandlerFunc(created))
	})
	f.wantProblem(f.do("GET", "/", ""), 400, "resource-unnamed")
	if want := (event.NoKey{Name: "account"}); !slices.Contains(f.events.Events(), event.Event(want)) {
		t.Errorf("events %+v, want %+v", f.events.Events(), want)
	}
}

// A path value exists only behind the router. If the middleware is around the router, or on a
// pattern without the name, the response is 500. The request does not run unguarded, and the client
// gets no 4xx. The Observer gets Misconfigured once.
func TestByPathValue(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		guarded := httpmw.Exclusive(l, byAccount, httpmw.ExclusiveOptions{})
		show := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, held := guard.Token(r.Context(), "account:4/2")
			_, _ = io.WriteString(w, strconv.FormatBool(held))
		})
		inner := http.NewServeMux()
		inner.Handle("/around/{id}", show)
		mux := http.NewServeMux()
		mux.Handle("/behind/{id}", guarded(show))
		mux.Handle("/rest/{id...}", guarded(show))
		mux.Handle("/other/{key}", guarded(show))
		mux.Handle("/around/", guarded(inner))
		return mux
	})
	for path, want := range map[string]int{"/behind/4%2F2": 200, "/rest/4/2": 200, "/rest/": 400, "/other/4%2F2": 500, "/around/4%2F2": 500} {
		for range 2 {
			if a := f.do("GET", path, ""); a.status != want || want == 200 && a.body != "true" || want == 500 && a.problem() != "internal" {
				t.Errorf("%s: got %d %q, want %d", path, a.status, a.body, want)
			}
		}
	}
	if n := count[event.Misconfigured](f.events); n != 1 {
		t.Errorf("%d Misconfigured, want 1, because there is one middleware", n)
	}
	if n := count[event.NoKey](f.events); n != 2 {
		t.Errorf("%d NoKey, want 2, of /rest/", n)
	}
}

// With chi too, a path value exists on a route, and not outside of the router.
func TestByPathValueWithChi(t *testing.T) {
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		guarded := httpmw.Exclusive(l, byAccount, httpmw.ExclusiveOptions{})
		ok := func(http.ResponseWriter, *http.Request) {}
		sub := chi.NewRouter()
		sub.With(guarded).Get("/{id:[0-9]+}/charges", ok)
		c := chi.NewRouter()
		c.With(guarded).Get("/accounts/{id}", ok)
		c.With(guarded).Get("/other/{key}", ok)
		c.Mount("/sub", sub)
		front := chi.NewRouter()
		front.Use(guarded)
		front.Get("/{id}", ok)
		c.Mount("/front", front)
		return c
	})
	for path, want := range map[string]int{"/accounts/42": 200, "/sub/42/charges": 200, "/other/42": 500, "/front/42": 500} {
		if a := f.do("GET", path, ""); a.status != want {
			t.Errorf("%s: got %d %q, want %d", path, a.status, a.body, want)
		}
	}
}

func TestExclusiveOptionsAreCheckedTogether(t *testing.T) {
	err := httpmw.ExclusiveOptions{Terms: lockcore.Terms{Lease: 1, Wait: -2}, Status: 503}.Validate()
	for _, want := range []string{"Terms.Lease", "Terms.Wait", "Status is 503"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	for _, status := range []int{0, 409, 423} {
		if err := (httpmw.ExclusiveOptions{Status: status}).Validate(); err != nil {
			t.Errorf("%d: %v", status, err)
		}
	}
}

func TestMistakesWithExclusivePanic(t *testing.T) {
	locks := locktest.New(t)
	for name, call := range map[string]func(){
		"locks":          func() { httpmw.Exclusive(nil, byAccount, httpmw.ExclusiveOptions{}) },
		"key":            func() { httpmw.Exclusive(locks, nil, httpmw.ExclusiveOptions{}) },
		"options":        func() { httpmw.Exclusive(locks, byAccount, httpmw.ExclusiveOptions{Status: 200}) },
		"handler":        func() { httpmw.Exclusive(locks, byAccount, httpmw.ExclusiveOptions{})(nil) },
		"n too small":    func() { httpmw.Limited(locks, byAccount, lockcore.Limit{}, httpmw.ShareOptions{}) },
		"n too large":    func() { httpmw.Limited(locks, byAccount, lockcore.Limit{N: 1_000_001}, httpmw.ShareOptions{}) },
		"weight above n": func() { httpmw.Limited(locks, byAccount, lockcore.Limit{N: 2, Weight: 3}, httpmw.ShareOptions{}) },
		"no limit":       func() { httpmw.LimitedFunc(locks, byAccount, nil, httpmw.ShareOptions{}) },
		"shared options": func() { httpmw.Shared(locks, byAccount, httpmw.ShareOptions{Terms: lockcore.Terms{Lease: 1}}) },
		"no class":       func() { httpmw.ByPathValue("", "id") },
		"class":          func() { httpmw.ByPathValue("a:b", "id") },
		"long class":     func() { httpmw.ByPathValue(strings.Repeat("c", 129), "id") },
		"no name":        func() { httpmw.ByPathValue("account", "") },
		"name in braces": func() { httpmw.ByPathValue("account", "{id}") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
