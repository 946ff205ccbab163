package httpmw

import (
	"errors"
	"net/http"

	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Shared returns a middleware that runs any number of requests of the same key at the same time.
// They never run while a request or job of [Exclusive] with that key runs. The requests are
// readers, see [guard.Shared]. Otherwise it behaves as Exclusive and has the same responses. It
// panics if locks or key is nil, or if [ShareOptions.Validate] returns an error.
func Shared(locks *lockcore.Locker, key KeyFunc, o ShareOptions) func(http.Handler) http.Handler {
	return newExclusive("Shared", &exclusive{locks: locks, key: key, shared: true}, o.exclusive(), o.Validate())
}

// ShareOptions are the options of [Shared], [Limited] and [LimitedFunc]. The zero value is ready to
// use.
type ShareOptions struct {
	// Terms apply to each run, see [ExclusiveOptions].
	Terms lockcore.Terms
	// Problem writes the responses of this package, see [ExclusiveOptions].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o ShareOptions) Validate() error {
	if err := o.Terms.Validate(); err != nil {
		return errtext.Prefix("httpmw: ShareOptions", err)
	}
	return nil
}

// Limited returns a middleware that runs at most limit.N requests of the same key at the same time,
// in all processes with the same Redis and prefix. With limit.Rate they also begin at
// that rate, see [Throttled]. [guard.Limited] documents the limit and its
// Weight.
//
// A request that does not fit waits up to Terms.Wait. Then it gets 429 with Retry-After. While
// Terms.MaxWaiting requests wait, further requests get 429 at once. Otherwise Limited behaves as
// [Exclusive]. Limited panics if locks or key is nil, or if limit or o is not valid.
func Limited(locks *lockcore.Locker, key KeyFunc, limit lockcore.Limit, o ShareOptions) func(http.Handler) http.Handler {
	invalid := errtext.Join(checkLimit("limit", limit), o.Validate())
	same := func(*http.Request) (lockcore.Limit, error) { return limit, nil }
	return newExclusive("Limited", &exclusive{locks: locks, key: key, limit: same}, o.exclusive(), invalid)
}

// LimitFunc returns the limit of a request, for example its tenant's. All requests of a key should
// have the same N. It is called once per request, from several goroutines, and must not read
// r.Body. If it returns an error or a limit that is not valid, the response is 500, and the
// Observer gets event.NoKey.
type LimitFunc func(r *http.Request) (lockcore.Limit, error)

// LimitedFunc is [Limited] with a limit that depends on the request. It panics if locks, key or
// limit is nil, or if o is not valid.
func LimitedFunc(locks *lockcore.Locker, key KeyFunc, limit LimitFunc, o ShareOptions) func(http.Handler) http.Handler {
	invalid := o.Validate()
	if limit == nil {
		invalid = errtext.Join(errors.New("limit must not be nil"), invalid)
	}
	return newExclusive("LimitedFunc", &exclusive{locks: locks, key: key, limit: limit}, o.exclusive(), invalid)
}

func (o ShareOptions) exclusive() ExclusiveOptions {
	return ExclusiveOptions{Terms: o.Terms, Problem: o.Problem}
}

// checkLimit returns an error that says what is not valid.
func checkLimit(what string, limit lockcore.Limit) error {
	if err := limit.Validate(); err != nil {
		return errtext.Prefix("httpmw: "+what, err)
	}
	return nil
}
