package httpmw

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Shared returns a middleware that runs any number of requests of the same key at the same time.
// They never run beside a request or job of [Exclusive] with that key. The requests are readers,
// see [guard.Shared]. Otherwise it behaves as Exclusive and has the same responses. It panics if
// locks or key is nil, or if [ExclusiveOptions.Validate] refuses o.
func Shared(locks *lockcore.Locker, key KeyFunc, o ExclusiveOptions) func(http.Handler) http.Handler {
	return newExclusive("Shared", &exclusive{locks: locks, key: key, shared: true}, o, o.Validate())
}

// LimitedOptions are the options of [Limited] and [LimitedFunc]. The zero value is ready to use.
type LimitedOptions struct {
	// Terms are those of [ExclusiveOptions]. Limit must be 0. Weight is how much of the limit a
	// request takes. Default: 1.
	Terms lockcore.Terms
	// Problem is that of [ExclusiveOptions].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound. Validate cannot compare Terms.Weight with a limit that it does not know.
func (o LimitedOptions) Validate() error {
	var limit error
	if o.Terms.Limit != 0 {
		limit = fmt.Errorf("httpmw: LimitedOptions: Terms.Limit is %d, must be 0: the limit is a parameter", o.Terms.Limit)
	}
	t := o.Terms
	t.Limit = lockcore.MaxLimit
	err := t.Validate()
	if err != nil {
		err = errtext.Prefix("httpmw: LimitedOptions", err)
	}
	return errtext.Join(limit, err)
}

// Limited returns a middleware that runs at most n requests of the same key at the same time, in
// all processes with the same Redis and prefix. With Terms.MinHold at most n requests begin within
// that time, which is a rate limit. [guard.Limited] documents n and Terms.Weight.
//
// A request that does not fit waits up to Terms.Wait. Then it gets 429 with Retry-After. While
// Terms.MaxWaiting requests wait, further requests get 429 at once. Otherwise Limited behaves as
// [Exclusive]. n is 1 to 1,000,000 and at least Terms.Weight. Limited panics if locks or key is
// nil, or if n or o is not valid.
func Limited(locks *lockcore.Locker, key KeyFunc, n int, o LimitedOptions) func(http.Handler) http.Handler {
	invalid := o.Validate()
	if invalid == nil {
		invalid = checkLimit("n", n, o.Terms.Weight)
	}
	limit := func(*http.Request) (int, error) { return n, nil }
	return newExclusive("Limited", &exclusive{locks: locks, key: key, limit: limit}, o.exclusive(), invalid)
}

// LimitFunc returns the limit of a request, for example that of its tenant: 1 to 1,000,000, and at
// least Terms.Weight. All requests of a key should have the same limit. It is called once per
// request, from several goroutines, and must not read r.Body. If it returns an error or another
// number, the response is 500, and the Observer gets event.NoKey.
type LimitFunc func(r *http.Request) (int, error)

// LimitedFunc is [Limited] with a limit that depends on the request. It panics if locks, key or
// limit is nil, or if o is not valid.
func LimitedFunc(locks *lockcore.Locker, key KeyFunc, limit LimitFunc, o LimitedOptions) func(http.Handler) http.Handler {
	invalid := o.Validate()
	if limit == nil {
		invalid = errtext.Join(errors.New("limit must not be nil"), invalid)
	}
	return newExclusive("LimitedFunc", &exclusive{locks: locks, key: key, limit: limit}, o.exclusive(), invalid)
}

func (o LimitedOptions) exclusive() ExclusiveOptions {
	return ExclusiveOptions{Terms: o.Terms, Problem: o.Problem}
}

func checkLimit(what string, n, weight int) error {
	switch {
	case n < 1 || n > lockcore.MaxLimit:
		return fmt.Errorf("httpmw: %s is %d, must be between 1 and %d", what, n, lockcore.MaxLimit)
	case weight > n:
		return fmt.Errorf("httpmw: Terms.Weight is %d, must be at most %s, which is %d", weight, what, n)
	}
	return nil
}
