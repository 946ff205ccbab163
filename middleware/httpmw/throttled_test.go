package httpmw_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
	"github.com/holdfast-go/holdfast/middleware/httpmw"
)

// throttledAt returns a fixture whose /accounts/{id} is throttled.
func throttledAt(t *testing.T, rate httpmw.RateFunc, o httpmw.ThrottleOptions) *fixture {
	t.Helper()
	return newFixture(t, func(l *lockcore.Locker) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("/accounts/{id}", httpmw.ThrottledFunc(l, byAccount, rate, o)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
		return mux
	})
}

// A request within the rate runs, and the next one gets 429 with the time of its turn. Each response
// has the headers of the rate, with the class of the key and without its ID.
func TestThrottled(t *testing.T) {
	rate := lockcore.Rate{N: 2, Per: time.Minute, Burst: 2}
	f := throttledAt(t, func(*http.Request) (lockcore.Rate, error) { return rate, nil }, httpmw.ThrottleOptions{})
	for i, want := range []string{`"account";r=1;t=30`, `"account";r=0;t=30`, `"account";r=0;t=30`} {
		a := <-f.get(t.Context(), "/accounts/7")
		if got := a.header.Get(httpmw.HeaderRateLimit); got != want || a.header.Get(httpmw.HeaderRateLimitPolicy) != `"account";q=2;w=60` {
			t.Errorf("request %d: RateLimit is %s, want %s; the policy is %s", i, got, want, a.header.Get(httpmw.HeaderRateLimitPolicy))
		}
		if i < 2 && a.status != http.StatusOK {
			t.Errorf("request %d: status %d", i, a.status)
		}
		if i == 2 {
			f.wantProblem(a, http.StatusTooManyRequests, "limit-reached")
			if after := a.header.Get("Retry-After"); after != "30" {
				t.Errorf("Retry-After is %s, want 30", after)
			}
		}
	}
	if a := <-f.get(t.Context(), "/accounts/8"); a.status != http.StatusOK {
		t.Errorf("another key: status %d", a.status)
	}
	f.wantHeld("account:7", false)
}

// The fields of a rate have no window if Per is not whole seconds, and a class is quoted.
func TestThrottledFields(t *testing.T) {
	f := throttledAt(t, func(*http.Request) (lockcore.Rate, error) {
		return lockcore.Rate{N: 3, Per: 1500 * time.Millisecond}, nil
	}, httpmw.ThrottleOptions{Name: "a\"b\\c\u00e9"})
	a := <-f.get(t.Context(), "/accounts/7")
	if got := a.header.Get(httpmw.HeaderRateLimitPolicy); got != `"a\"b\\c";q=3` {
		t.Errorf("the policy is %s", got)
	}
	if got := a.header.Get(httpmw.HeaderRateLimit); got != `"a\"b\\c";r=0;t=1` {
		t.Errorf("RateLimit is %s", got)
	}
}

// A RateFunc returns an error or an invalid rate. The response is 500, and Problem.Err has the
// reason.
func TestRateFuncFails(t *testing.T) {
	for want, rate := range map[string]httpmw.RateFunc{
		"no tenant":                         func(*http.Request) (lockcore.Rate, error) { return lockcore.Rate{N: 1}, errors.New("no tenant") },
		"the rate of RateFunc: Rate.N is 0": func(*http.Request) (lockcore.Rate, error) { return lockcore.Rate{}, nil },
	} {
		var logged error
		f := throttledAt(t, rate, httpmw.ThrottleOptions{Problem: func(w http.ResponseWriter, r *http.Request, p httpmw.Problem) {
			logged = p.Err
			httpmw.WriteProblem(w, r, p)
		}})
		f.wantProblem(<-f.get(t.Context(), "/accounts/7"), http.StatusInternalServerError, "internal")
		if logged == nil || !strings.Contains(logged.Error(), want) {
			t.Errorf("%v, want %q", logged, want)
		}
	}
}
