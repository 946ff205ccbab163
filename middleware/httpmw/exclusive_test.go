package httpmw_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

var (
	byAccount = httpmw.ByPathValue("account", "id")
	noWait    = lockcore.Terms{Wait: lockcore.NoWait}
	patience  = lockcore.Terms{Wait: time.Minute}
)

// alone returns a fixture whose /accounts/{id} runs h for one request of each account at a time.
func alone(t *testing.T, o httpmw.ExclusiveOptions, h http.HandlerFunc) (*fixture, *front) {
	t.Helper()
	fr := &front{gone: make(chan struct{}, 1), done: make(chan any, 1)}
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/accounts/{id}", httpmw.Exclusive(l, byAccount, o)(h))
		fr.next = mux
		return fr
	})
	return f, fr
}

// get sends a GET on another goroutine and returns a channel for its response.
func (f *fixture) get(ctx context.Context, path string) <-chan answer {
	r := f.request("GET", path, "").WithContext(ctx)
	c := make(chan answer, 1)
	go func() { // ends with the answer or with ctx
		a, _ := f.send(r)
		c <- a
	}()
	return c
}

// wantHeld checks whether the key has a holder. If want is true, the holder must keep it for
// another 50 ms.
func (f *fixture) wantHeld(key string, want bool) {
	f.t.Helper()
	terms := noWait
	if want {
		terms.Wait = 50 * time.Millisecond
	}
	err := guard.Exclusive(f.t.Context(), f.locks, key, terms, func(context.Context) error { return nil })
	if errors.Is(err, lockcore.ErrBusy) != want || err != nil && !want {
		f.t.Errorf("%s: got %v, want it held: %v", key, err, want)
	}
}

// Many requests for two accounts come at once. No two requests of one account overlap, and all are
// served.
// Shows: H10
func TestExclusiveRunsOneOfManyAtATime(t *testing.T) {
	var inside, runs [2]atomic.Int64
	f, _ := alone(t, httpmw.ExclusiveOptions{Terms: patience}, func(_ http.ResponseWriter, r *http.Request) {
		i, _ := strconv.Atoi(r.PathValue("id"))
		if n := inside[i].Add(1); n != 1 {
			t.Errorf("%d inside", n)
		}
		runs[i].Add(1)
		time.Sleep(time.Millisecond) // makes an overlap likely if the guard is wrong
		inside[i].Add(-1)
	})
	const n = 60
	var wg sync.WaitGroup
	for i := range n {
		r := f.request("POST", fmt.Sprint("/accounts/", i%2), "body")
		wg.Go(func() {
			if a, err := f.send(r); err != nil || a.status != 200 {
				t.Errorf("got %d %q, %v", a.status, a.body, err)
			}
		})
	}
	wg.Wait()
	if runs[0].Load() != n/2 || runs[1].Load() != n/2 {
		t.Errorf("%d and %d runs, want %d each", runs[0].Load(), runs[1].Load(), n/2)
	}
}

// Another guard holds account:42. Requests of account 42 are refused with the Status of the options
// and a Retry-After, and the body does not name the key. Requests of other accounts run.
func TestExclusiveMeetsOtherGuards(t *testing.T) {
	for status, want := range map[int]int{0: 409, http.StatusConflict: 409, http.StatusLocked: 423} {
		var runs atomic.Int64
		f, _ := alone(t, httpmw.ExclusiveOptions{Terms: noWait, Status: status}, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
		err := guard.Exclusive(t.Context(), f.locks, "account:42", lockcore.Terms{}, func(context.Context) error {
			a := f.do("POST", "/accounts/42", "")
			f.wantProblem(a, want, "busy")
			if n, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || n < 1 || n > 60 {
				t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
			}
			if strings.Contains(a.body, "account:") || !strings.Contains(a.body, fmt.Sprintf(`"status":%d`, want)) {
				t.Errorf("the body is %q", a.body)
			}
			f.wantRan(f.do("POST", "/accounts/43", ""), 200)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		f.wantRan(f.do("POST", "/accounts/42", ""), 200)
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
	}
}

// Retry-After is BusyError.RetryAfter, rounded up to whole seconds.
func TestExclusiveAdvisesWhenToComeAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		h := httpmw.Exclusive(b.locks, fixed("account:42"), httpmw.ExclusiveOptions{Terms: noWait})(http.NotFoundHandler())
		release := locktest.Hold(t, b.locks, "account:42")
		defer release()
		time.Sleep(6100 * time.Millisecond)
		if a := post(h); a.status != 409 || a.header.Get("Retry-After") != "7" {
			t.Errorf("got %d, Retry-After %q after 6.1 s", a.status, a.header.Get("Retry-After"))
		}
	})
}

// fixed returns a KeyFunc that always returns one key, CLASS:ID or ID.
func fixed(key string) httpmw.KeyFunc {
	class, id, found := strings.Cut(key, ":")
	if !found {
		class, id = "", key
	}
	return func(*http.Request) (guard.Key, error) { return guard.Key{Class: class, ID: id}, nil }
}

// A request waits until the key is released, and then runs.
func TestExclusiveWaitsForItsTurn(t *testing.T) {
	f, _ := alone(t, httpmw.ExclusiveOptions{Terms: patience}, created)
	release := locktest.Hold(t, f.locks, "account:42")
	second := f.get(t.Context(), "/accounts/42")
	<-f.events.waiting
	release()
	f.wantRan(<-second, 201)
}

// The handler holds the key: it has a token, and a guard of the same key inside it is nested.
func TestExclusiveIsEnteredAgain(t *testing.T) {
	f, _ := alone(t, httpmw.ExclusiveOptions{}, func(w http.ResponseWriter, r *http.Request) {
		token, ok := guard.Token(r.Context(), "account:42")
		err := guard.Exclusive(r.Context(), locksOf(r), "account:42", noWait, func(ctx context.Context) error {
			inner, _ := guard.Token(ctx, "account:42")
			if inner != token {
				t.Errorf("token %d inside, %d outside", inner, token)
			}
			return nil
		})
		_, _ = fmt.Fprint(w, token > 0, ok, err)
	})
	withLocks(f)
	if a := f.do("GET", "/accounts/42", ""); a.body != "true true <nil>" {
		t.Errorf("got %q", a.body)
	}
	f.wantHeld("account:42", false)
}

type locksKey struct{}

// withLocks puts the Locker of f into the ctx of its requests, see locksOf.
func withLocks(f *fixture) {
	next := f.srv.Config.Handler
	f.srv.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), locksKey{}, f.locks)))
	})
}

func locksOf(r *http.Request) *lockcore.Locker {
	l, _ := r.Context().Value(locksKey{}).(*lockcore.Locker)
	return l
}

// A handler outside of Exclusive sees the pattern and the form of the request that the inner
// handler got.
func TestExclusiveHandsTheRequestBack(t *testing.T) {
	var seen *http.Request
	f := newFixture(t, func(l *lockcore.Locker) http.Handler {
		mux := http.NewServeMux()
		mux.HandleFunc("POST /accounts/{id}", func(_ http.ResponseWriter, r *http.Request) { _ = r.ParseMultipartForm(1 << 10) })
		h := httpmw.Exclusive(l, fixed("k"), httpmw.ExclusiveOptions{})(mux)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			seen = r
		})
	})
	body := "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--\r\n"
	f.wantRan(f.do("POST", "/accounts/42", body, "Content-Type", "multipart/form-data; boundary=b"), 200)
	if seen.Pattern != "POST /accounts/{id}" || seen.MultipartForm == nil || seen.MultipartForm.Value["a"][0] != "1" {
		t.Errorf("pattern %q, form %v", seen.Pattern, seen.MultipartForm)
	}
}
