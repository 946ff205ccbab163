package httpmw

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The headers that [Throttled] sets, of draft-ietf-httpapi-ratelimit-headers-10.
const (
	HeaderRateLimit       = "RateLimit"
	HeaderRateLimitPolicy = "RateLimit-Policy"
)

// ThrottleOptions are the options of [Throttled] and [ThrottledFunc]. The zero value is ready to use.
type ThrottleOptions struct {
	// Wait bounds how long a request waits for its turn. A request whose turn is later gets 429 at
	// once. Default: the Locker's Wait (2 s).
	Wait time.Duration
	// MaxWaiting bounds how many requests of this process wait for one key, see [ExclusiveOptions].
	MaxWaiting int
	// Name is the class of the key in telemetry and in the headers, see [ExclusiveOptions].
	Name string
	// Problem writes the responses of this package, see [ExclusiveOptions].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o ThrottleOptions) Validate() error {
	if err := o.exclusive().Terms.Validate(); err != nil {
		return errtext.Prefix("httpmw: ThrottleOptions", err)
	}
	return nil
}

func (o ThrottleOptions) exclusive() ExclusiveOptions {
	return ExclusiveOptions{Terms: lockcore.Terms{Name: o.Name, Wait: o.Wait, MaxWaiting: o.MaxWaiting}, Problem: o.Problem}
}

// Throttled returns a middleware under which the requests of a key begin at the rate, in all
// processes with the same Redis and prefix. [lockcore.Rate] has the rules of rates. This serves at
// most 100 requests of a tenant in a second, up to 10 of them at once:
//
//	httpmw.Throttled(locks, byTenant, lockcore.Rate{N: 91, Burst: 10}, httpmw.ThrottleOptions{})
//
// A request waits up to Wait for its turn. If its turn is later, or MaxWaiting requests wait, it gets
// 429, with the time of its turn as Retry-After. Nothing is held while the handler runs.
//
// The handler's response to a request with a key, and each 429, have two headers:
//
//	RateLimit-Policy: "tenant";q=91;w=1
//	RateLimit: "tenant";r=9;t=0
//
// q is N, and w is Per in seconds, which is left out unless Per is a whole number of seconds. r is
// the cost that may be taken now, at most Burst. t is the number of seconds, rounded up, until 1
// more may be taken, or in a 429 until the turn of the request. The name is o.Name, by default the
// class of the key, and not its ID.
//
// Otherwise Throttled behaves as [Exclusive]. It panics if locks or key is nil, or if rate or o is
// not valid.
func Throttled(locks *lockcore.Locker, key KeyFunc, rate lockcore.Rate, o ThrottleOptions) func(http.Handler) http.Handler {
	invalid := errtext.Join(checkRate("rate", rate), o.Validate())
	same := func(*http.Request) (lockcore.Rate, error) { return rate, nil }
	return newExclusive("Throttled", &exclusive{locks: locks, key: key, rate: same}, o.exclusive(), invalid)
}

// RateFunc returns the rate of a request, for example its tenant's, or its Cost. It is called once
// per request, from several goroutines, and must not read r.Body. If it returns an error or a rate
// that is not valid, the response is 500, and the Observer gets event.NoKey.
type RateFunc func(r *http.Request) (lockcore.Rate, error)

// ThrottledFunc is [Throttled] with a rate that depends on the request. It panics if locks, key or
// rate is nil, or if o is not valid.
func ThrottledFunc(locks *lockcore.Locker, key KeyFunc, rate RateFunc, o ThrottleOptions) func(http.Handler) http.Handler {
	invalid := o.Validate()
	if rate == nil {
		invalid = errtext.Join(errors.New("rate must not be nil"), invalid)
	}
	return newExclusive("ThrottledFunc", &exclusive{locks: locks, key: key, rate: rate}, o.exclusive(), invalid)
}

// checkRate returns an error that says what is not valid.
func checkRate(what string, rate lockcore.Rate) error {
	if err := rate.Validate(); err != nil {
		return errtext.Prefix("httpmw: "+what, err)
	}
	return nil
}

// serveThrottled runs next when the rate of the request lets it begin.
func (m *exclusive) serveThrottled(w http.ResponseWriter, r *http.Request, key guard.Key, terms lockcore.Terms, next http.Handler) {
	rate, err := m.rate(r)
	if err == nil {
		err = checkRate("the rate of RateFunc", rate)
	}
	if err != nil {
		m.refuse(w, r, key, errtext.Wrap(errLimit, err))
		return
	}
	if err := m.throttle(w, r, key.String(), rate, terms); err != nil {
		m.refuseRun(w, r, key, err)
		return
	}
	next.ServeHTTP(w, r)
}

// throttle waits for the turn of the request, and sets the headers of its response.
func (m *exclusive) throttle(w http.ResponseWriter, r *http.Request, key string, rate lockcore.Rate, terms lockcore.Terms) error {
	at, err := m.locks.Throttle(r.Context(), key, rate, lockcore.ThrottleOptions{Name: terms.Name, Wait: terms.Wait, MaxWaiting: terms.MaxWaiting})
	reset := at.Reset
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
		reset = busy.Remaining
	} else if err != nil {
		return err
	}
	per := rate.Per
	if per == 0 {
		per = time.Second
	}
	policy, window := fieldString(terms.Name), ""
	if per%time.Second == 0 { // the field has only whole seconds
		window = fmt.Sprintf(";w=%d", per/time.Second)
	}
	w.Header().Set(HeaderRateLimitPolicy, fmt.Sprintf("%s;q=%d%s", policy, rate.N, window))
	w.Header().Set(HeaderRateLimit, fmt.Sprintf("%s;r=%d;t=%.0f", policy, at.Left, math.Ceil(reset.Seconds())))
	return err
}

// fieldString returns s as a string of a structured field (RFC 9651), without the characters that
// such a string cannot have.
func fieldString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c >= ' ' && c < 0x7f:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}
