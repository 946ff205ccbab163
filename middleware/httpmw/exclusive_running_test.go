package httpmw_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/locktest"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// A client disconnects while its request is in the wait queue. The request does not run, and the
// next one runs.
func TestExclusiveDisconnectWhileWaiting(t *testing.T) {
	var runs atomic.Int64
	f, fr := alone(t, httpmw.ExclusiveOptions{Terms: lockcore.Terms{Wait: lockcore.Forever}}, func(http.ResponseWriter, *http.Request) { runs.Add(1) })
	release := locktest.Hold(t, f.locks, "account:42")
	ctx, cancel := context.WithCancel(t.Context())
	gone := f.get(ctx, "/accounts/42")
	<-f.events.waiting
	cancel()
	<-gone
	<-fr.done
	next := f.get(t.Context(), "/accounts/42")
	<-f.events.waiting
	release()
	f.wantRan(<-next, 200)
	if runs.Load() != 1 {
		t.Errorf("%d runs, want 1", runs.Load())
	}
}

// A client disconnects while its handler runs. As always in net/http the handler's ctx ends. The
// key is held until the handler returns.
func TestExclusiveDisconnectWhileRunning(t *testing.T) {
	entered, leave, cause := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, fr := alone(t, httpmw.ExclusiveOptions{Terms: noWait}, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		cause <- context.Cause(r.Context())
		<-leave
	})
	ctx, cancel := context.WithCancel(t.Context())
	gone := f.get(ctx, "/accounts/42")
	<-entered
	cancel()
	<-gone
	if err := <-cause; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's ctx ended by %v", err)
	}
	f.wantHeld("account:42", true)
	close(leave)
	<-fr.done
	f.wantHeld("account:42", false)
}

// A handler panics, also with http.ErrAbortHandler. The key is free, and the panic passes through
// Exclusive.
// Shows: H10
func TestExclusivePanic(t *testing.T) {
	for _, value := range []any{http.ErrAbortHandler, "a mistake"} {
		var runs atomic.Int64
		f, fr := alone(t, httpmw.ExclusiveOptions{Terms: noWait}, func(http.ResponseWriter, *http.Request) {
			if runs.Add(1) == 1 {
				panic(value)
			}
		})
		if a, err := f.send(f.request("POST", "/accounts/42", "")); err == nil {
			t.Errorf("got %d %q, want no answer", a.status, a.body)
		}
		if got := <-fr.done; got != value {
			t.Errorf("panicked with %v, want %v", got, value)
		}
		f.wantRan(f.do("POST", "/accounts/42", ""), 200)
	}
}

// A run fails. The key is free, and the next request runs.
func TestExclusiveFailureFreesTheKey(t *testing.T) {
	status := 500
	f, _ := alone(t, httpmw.ExclusiveOptions{Terms: noWait}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		status = 200
	})
	f.wantRan(f.do("POST", "/accounts/42", ""), 500)
	f.wantRan(f.do("POST", "/accounts/42", ""), 200)
}

// both returns a fixture with Idempotent outside of Exclusive for /accounts/{id}.
func both(t *testing.T, o httpmw.IdempotentOptions, e httpmw.ExclusiveOptions, h http.HandlerFunc) *fixture {
	t.Helper()
	return newFixture(t, func(l *lockcore.Locker) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/accounts/{id}", idempotent(l, o)(httpmw.Exclusive(l, byAccount, e)(h)))
		return mux
	})
}

// Idempotent is outside of Exclusive. A replay does not wait for the account.
func TestReplayDoesNotWaitForExclusive(t *testing.T) {
	f := both(t, httpmw.IdempotentOptions{}, httpmw.ExclusiveOptions{Terms: noWait}, func(w http.ResponseWriter, r *http.Request) {
		_, once := guard.Token(r.Context(), httpmw.Key(r.Context()))
		_, alone := guard.Token(r.Context(), "account:42")
		if !once || !alone {
			t.Errorf("holds its key: %v, its account: %v", once, alone)
		}
		w.WriteHeader(http.StatusCreated)
	})
	f.wantRan(f.do("POST", "/accounts/42", "", "Idempotency-Key", "k"), 201)
	locktest.Hold(t, f.locks, "account:42")
	f.wantReplayed(f.do("POST", "/accounts/42", "", "Idempotency-Key", "k"), 201)
	f.wantProblem(f.do("POST", "/accounts/42", "", "Idempotency-Key", "other"), 409, "busy")
}

// Exclusive refuses a request inside Idempotent. The refusal is not recorded, with any options, and
// a repetition runs.
// Shows: H12
func TestRefusalOfExclusiveIsNotRecorded(t *testing.T) {
	for name, o := range map[string]httpmw.IdempotentOptions{
		"by default": {}, "all": {Store: httpmw.StoreAll}, "at most once": {Mode: guard.AtMostOnce},
	} {
		for _, status := range []int{409, 423} {
			f := both(t, o, httpmw.ExclusiveOptions{Terms: noWait, Status: status}, created)
			release := locktest.Hold(t, f.locks, "account:42")
			send := func() answer { return f.do("POST", "/accounts/42", "", "Idempotency-Key", "k") }
			f.wantProblem(send(), status, "busy")
			release()
			if a := send(); a.status != 201 || a.replayed() {
				t.Errorf("%s: got %d, replayed %v; want the first run", name, a.status, a.replayed())
				continue
			}
			f.wantReplayed(send(), 201)
		}
	}
}

// The deadline of the request ends inside Idempotent, and Exclusive responds with 503. That
// response is not recorded either.
func TestTimeoutOfExclusiveIsNotRecorded(t *testing.T) {
	inBubble(t, func(t *testing.T, b bubble) {
		late := true
		next := httpmw.Exclusive(b.locks, fixed("account:42"), httpmw.ExclusiveOptions{})(http.HandlerFunc(created))
		h := httpmw.Idempotent(b.locks, tenant, httpmw.IdempotentOptions{Mode: guard.AtMostOnce})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if late {
				ctx, cancel := context.WithDeadline(r.Context(), time.Now())
				defer cancel()
				r = r.WithContext(ctx)
			}
			next.ServeHTTP(w, r)
		}))
		if a := post(h); a.status != 503 || a.problem() != "unavailable" {
			t.Errorf("got %d %q", a.status, a.body)
		}
		late = false
		if a := post(h); a.status != 201 || a.replayed() {
			t.Errorf("got %d %q, replayed %v", a.status, a.body, a.replayed())
		}
	})
}
