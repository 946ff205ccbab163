package httpmw

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

const (
	statusClientClosed = 499 // of nginx and gateways: the client disconnected, or the time was over

	defaultName    = "http"
	defaultHold    = 5 * time.Minute
	defaultWaiting = 64
	defaultLimit   = 1 << 20
	maxLimit       = 16 << 20
)

// Store selects the responses that are recorded.
type Store int

const (
	// StoreFinal records every status below 500, except 401, 403, 408, 425, 429, 499 and any 4xx
	// with Retry-After. After these the same request may succeed.
	StoreFinal Store = iota
	// StoreAll records every status, also 5xx, as Stripe's API v1 does.
	StoreAll
	// StoreSuccess records 2xx only. So a client can correct its request after a 4xx and use
	// the same key.
	StoreSuccess
)

// IdempotentOptions are the options of [Idempotent]. The zero value is ready to use.
type IdempotentOptions struct {
	// Terms apply to each run:
	//
	//   - Wait bounds the time that a request waits while another one of its key runs, or while
	//     Redis is unavailable. Then the response is 409, or 503. Default: the Locker's Wait
	//     (2 s), or NoWait inside of Exclusive, Shared or Limited.
	//   - MaxHold bounds the handler. Default: 5 min. The Terms of the Locker do not change this
	//     default.
	//   - MaxWaiting bounds how many requests of this process wait for one key. A further request
	//     gets 409 at once. Default: the Locker's bound, or else 64. 1,000,000
	//     means no bound.
	//   - Name is "http" by default.
	//   - Limit and Weight must be 0.
	Terms lockcore.Terms
	// Keep is how long a response can be replayed. Default: 24 h. 1 s to 366 days. Publish it,
	// because clients must not repeat a request later.
	Keep time.Duration
	// Mode decides what happens to an abandoned key. A key is abandoned if the process of its run
	// has died, for example. Default: guard.AtLeastOnce. With guard.AtMostOnce such a key
	// gets [TypeOutcomeUnknown], a panic of the handler leaves the key abandoned, and a 5xx
	// is recorded with every Store.
	Mode guard.Mode
	// Secret makes the digests of scope, key and request HMACs. Without it, a reader of Redis can
	// test guesses of them. Use 32 random bytes, the same in every process. Do not change it within
	// Keep. Default: plain SHA-256.
	Secret []byte
	// Header is the request header that contains the client's key. Default: Idempotency-Key.
	Header string
	// ValidKey returns an error if a client's key is not acceptable. A key must always have 1 to
	// 255 printable ASCII characters. A request with another key gets 400 as [TypeKeyMalformed].
	// The error is in Problem.Err, for logs. [UUIDKey] accepts only UUIDs. Default: every key is
	// acceptable.
	ValidKey func(key string) error
	// Methods are the methods that are guarded and need a key. Requests with another method run
	// unguarded, even with a key. Add PUT and DELETE if clients send keys with them. Default: POST
	// and PATCH.
	Methods []string
	// Optional lets requests without a key run unguarded. Default: they get 400.
	Optional bool
	// Fingerprint returns the part of a request that must be equal when its key is used again.
	// Otherwise the response is 422. Fingerprint must not read r.Body, because body contains all of
	// it. The result may have any length. Only a digest of it is stored. Default: method, path,
	// sorted query, Content-Type and body. Of a multipart body the boundary is not compared,
	// because a client chooses a new one for a repeat; all other bytes are. A compressed body (with
	// Content-Encoding) is compared as it was sent.
	Fingerprint func(r *http.Request, body []byte) []byte
	// Store selects the responses that are recorded. Default: StoreFinal. A response that is not
	// recorded releases the key.
	Store Store
	// OmitHeaders are names of headers that are not recorded, in addition to the list below.
	// Default: none. The headers that the handler has set, changed or deleted are recorded and
	// replayed. A header that code in front of Idempotent set is recorded only if the handler has
	// changed it. For a replay, that code sets it again. These headers and trailers are not
	// recorded:
	//
	//   - of one connection: Connection and the headers that it names, Keep-Alive,
	//     Proxy-Connection, Te, Trailer, Transfer-Encoding, Upgrade
	//   - credentials: Authorization, Authentication-Info, Cookie, Proxy-Authenticate,
	//     Proxy-Authentication-Info, Proxy-Authorization, Set-Cookie, Set-Cookie2,
	//     Www-Authenticate; and, unless OnlyHeaders names them: X-Access-Token, X-Api-Key,
	//     X-Auth-Token, X-Csrf-Token, X-Refresh-Token, X-Xsrf-Token
	//   - Date and Idempotent-Replayed, and, unless OnlyHeaders names them: Age, Clear-Site-Data,
	//     Server-Timing
	//   - ids of requests and traces, unless OnlyHeaders names them: B3, Baggage, Correlation-Id,
	//     Request-Id, Trace-Id, Traceparent, Traceresponse, Tracestate, Uber-Trace-Id,
	//     X-Amz-Request-Id, X-Amzn-Requestid, X-Amzn-Trace-Id, X-B3-…, X-Cloud-Trace-Context,
	//     X-Correlation-Id, X-Datadog-…, X-Request-Id, X-Trace-Id
	//   - CORS, unless OnlyHeaders names them: Access-Control-…, Timing-Allow-Origin
	//   - rate limits, unless OnlyHeaders names them: Ratelimit, Ratelimit-…, X-Rate-Limit-…,
	//     X-Ratelimit-…
	//
	// Content-Type, Content-Encoding and Content-Length cannot be omitted. Idempotent sets none of
	// them, so code in front may compress the body. A response whose recorded headers and
	// trailers exceed 64 KiB is not recorded, see [TypeNotReplayable].
	OmitHeaders []string
	// OnlyHeaders are names of headers. If set, only these headers are recorded, and Content-Type,
	// Content-Encoding and Content-Length. Default: all except the list of OmitHeaders. Only one of
	// OnlyHeaders and OmitHeaders may be set.
	OnlyHeaders []string
	// MaxRequest bounds the body of the request in bytes. The body is read before the handler runs.
	// Above the bound the response is 413. Default: 1 MiB. At most 16 MiB.
	MaxRequest int
	// MaxResponse bounds the recorded body in bytes. A response above it is streamed and not
	// recorded, see [TypeNotReplayable]. Recorded headers and trailers have a separate bound of 64
	// KiB. Default: 1 MiB. At most 16 MiB.
	MaxResponse int
	// CancelOnDisconnect cancels the handler's ctx when the client disconnects, and returns errors
	// of writes to the handler. By default the handler runs to its end, for at most Terms.MaxHold,
	// and its response is recorded.
	CancelOnDisconnect bool
	// Problem writes the responses of this package, for APIs with another error format. Retry-After
	// is set before the call. Default: [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o IdempotentOptions) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("httpmw: IdempotentOptions."+format, args...))
	}
	if err := (guard.OnceOptions{Terms: o.Terms, Keep: o.Keep, Mode: o.Mode}).Validate(); err != nil {
		errs = append(errs, errtext.Prefix("httpmw: IdempotentOptions", err))
	}
	for _, m := range o.Methods {
		if !isMethod(m) {
			bad("Methods has %q, must be methods in upper case, as in http.MethodPost", m)
		}
	}
	if o.Store < StoreFinal || o.Store > StoreSuccess {
		bad("Store is %d, must be StoreFinal, StoreAll or StoreSuccess", o.Store)
	}
	if name := http.CanonicalHeaderKey(o.Header); o.Header != "" && (!isToken(o.Header) || neverKept(name) || name == "Content-Length" || name == "Host") {
		bad("Header is %q, must be the name of a header that a client may set and a proxy passes on", o.Header)
	}
	for _, h := range o.OmitHeaders {
		if !isToken(h) || slices.Contains(bodyHeaders, http.CanonicalHeaderKey(h)) {
			bad("OmitHeaders has %q, must be names of headers other than Content-Type, Content-Encoding and Content-Length", h)
		}
	}
	for _, h := range o.OnlyHeaders {
		if !isToken(h) || neverKept(http.CanonicalHeaderKey(h)) {
			bad("OnlyHeaders has %q, must be names of headers that may be replayed", h)
		}
	}
	if len(o.OmitHeaders) > 0 && len(o.OnlyHeaders) > 0 {
		bad("OmitHeaders has %d names and OnlyHeaders %d, only one of them may be set", len(o.OmitHeaders), len(o.OnlyHeaders))
	}
	if o.MaxRequest < 0 || o.MaxRequest > maxLimit {
		bad("MaxRequest is %d, must be between 0 and %d", o.MaxRequest, maxLimit)
	}
	if o.MaxResponse < 0 || o.MaxResponse > maxLimit {
		bad("MaxResponse is %d, must be between 0 and %d", o.MaxResponse, maxLimit)
	}
	return errtext.Join(errs...)
}

func (o IdempotentOptions) withDefaults(locks *lockcore.Locker) IdempotentOptions {
	o.Terms = withDefaults(o.Terms, locks)
	o.Terms.Name = cmp.Or(o.Terms.Name, defaultName)
	if len(o.Methods) == 0 {
		o.Methods = []string{http.MethodPost, http.MethodPatch}
	}
	o.Methods, o.Secret = slices.Clone(o.Methods), slices.Clone(o.Secret)
	o.OmitHeaders, o.OnlyHeaders = canonicalNames(o.OmitHeaders), canonicalNames(o.OnlyHeaders)
	o.Header = http.CanonicalHeaderKey(cmp.Or(o.Header, HeaderKey))
	o.MaxRequest = cmp.Or(o.MaxRequest, defaultLimit)
	o.MaxResponse = cmp.Or(o.MaxResponse, defaultLimit)
	if o.Problem == nil {
		o.Problem = WriteProblem
	}
	return o
}

// withDefaults returns t with the defaults of this package that do not depend on a key.
func withDefaults(t lockcore.Terms, locks *lockcore.Locker) lockcore.Terms {
	t.MaxWaiting = cmp.Or(t.MaxWaiting, locks.Terms().MaxWaiting, defaultWaiting)
	t.MaxHold = cmp.Or(t.MaxHold, defaultHold)
	return t
}

// must panics if one of errs is not nil. errs are invalid arguments of a constructor, which are
// mistakes in the program.
func must(constructor string, errs ...error) {
	if err := errtext.Join(errs...); err != nil {
		panic(errtext.Prefix("httpmw: "+constructor, err).Error())
	}
}

func notNil(argument string, ok bool) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s must not be nil", argument)
}

func canonicalNames(names []string) []string {
	canonical := make([]string, len(names))
	for i, name := range names {
		canonical[i] = http.CanonicalHeaderKey(name)
	}
	return canonical
}

// keeps reports whether a is recorded.
func (o IdempotentOptions) keeps(a *response) bool {
	status := a.status
	switch {
	case status < 200: // 101: another protocol uses the connection
		return false
	case o.Store == StoreAll, o.Mode == guard.AtMostOnce && status >= 500:
		return true
	case o.Store == StoreSuccess:
		return status >= 200 && status < 300
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooEarly,
		http.StatusTooManyRequests, statusClientClosed:
		return false
	}
	return status < 400 || status < 500 && len(a.header["Retry-After"]) == 0
}
