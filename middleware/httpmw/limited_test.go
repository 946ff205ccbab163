package httpmw_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// shares returns a fixture whose /accounts/{id} is behind the middleware that wrap returns. Its
// handler sends to entered and then waits for leave.
func shares(t *testing.T, wrap func(l *lockcore.Locker) func(http.Handler) http.Handler) (f *fixture, entered, leave chan struct{}) {
	t.Helper()
	entered, leave = make(chan struct{}), make(chan struct{})
	f = newFixture(t, func(l *lockcore.Locker) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/accounts/{id}", wrap(l)(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			guard.MustHold(r.Context(), "account:"+r.PathValue("id"))
			entered <- struct{}{}
			<-leave
		})))
		return mux
	})
	return f, entered, leave
}

// Requests up to the limit run, and the next one gets 429. When one has ended, another one runs.
func TestLimited(t *testing.T) {
	for name, wrap := range map[string]func(l *lockcore.Locker) func(http.Handler) http.Handler{
		"number": func(l *lockcore.Locker) func(http.Handler) http.Handler {
			return httpmw.Limited(l, byAccount, lockcore.Limit{N: 2}, httpmw.ShareOptions{Terms: noWait})
		},
		"function": func(l *lockcore.Locker) func(http.Handler) http.Handler {
			return httpmw.LimitedFunc(l, byAccount, func(*http.Request) (lockcore.Limit, error) {
				return lockcore.Limit{N: 4, Weight: 2}, nil
			}, httpmw.ShareOptions{Terms: noWait})
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, entered, leave := shares(t, wrap)
			first, second := f.get(t.Context(), "/accounts/7"), f.get(t.Context(), "/accounts/7")
			<-entered
			<-entered
			refused := <-f.get(t.Context(), "/accounts/7")
			f.wantProblem(refused, http.StatusTooManyRequests, "limit-reached")
			if refused.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			other := f.get(t.Context(), "/accounts/8")
			<-entered
			leave <- struct{}{}
			leave <- struct{}{}
			leave <- struct{}{}
			for _, c := range []<-chan answer{first, second, other} {
				if a := <-c; a.status != http.StatusOK {
					t.Errorf("status %d", a.status)
				}
			}
			third := f.get(t.Context(), "/accounts/7")
			<-entered
			leave <- struct{}{}
			<-third
		})
	}
}

// Readers run at the same time. While a writer holds the key, they are refused.
func TestShared(t *testing.T) {
	f, entered, leave := shares(t, func(l *lockcore.Locker) func(http.Handler) http.Handler {
		return httpmw.Shared(l, byAccount, httpmw.ShareOptions{Terms: noWait})
	})
	first, second := f.get(t.Context(), "/accounts/7"), f.get(t.Context(), "/accounts/7")
	<-entered
	<-entered
	f.wantHeld("account:7", true)
	leave <- struct{}{}
	leave <- struct{}{}
	<-first
	<-second
	writer, err := f.locks.Acquire(t.Context(), "account:7", lockcore.Terms{})
	if err != nil {
		t.Fatal(err)
	}
	f.wantProblem(<-f.get(t.Context(), "/accounts/7"), http.StatusConflict, "busy")
	if err := writer.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A LimitFunc returns an error or an invalid limit. The response is 500, and Problem.Err has the
// reason.
func TestLimitFuncFails(t *testing.T) {
	for want, limit := range map[string]httpmw.LimitFunc{
		"no tenant":                                    func(*http.Request) (lockcore.Limit, error) { return lockcore.Limit{N: 1}, errors.New("no tenant") },
		"the limit of LimitFunc: Limit.N is 0":         func(*http.Request) (lockcore.Limit, error) { return lockcore.Limit{}, nil },
		"Limit.N is -2, must be between 1 and 1000000": func(*http.Request) (lockcore.Limit, error) { return lockcore.Limit{N: -2}, nil },
	} {
		var logged error
		f, _, _ := shares(t, func(l *lockcore.Locker) func(http.Handler) http.Handler {
			return httpmw.LimitedFunc(l, byAccount, limit, httpmw.ShareOptions{Problem: func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
				logged = p.Err
				httpmw.WriteProblem(w, r, p)
			}})
		})
		f.wantProblem(<-f.get(t.Context(), "/accounts/7"), http.StatusInternalServerError, "internal")
		if logged == nil || !strings.Contains(logged.Error(), want) {
			t.Errorf("%v, want %q", logged, want)
		}
	}
}
