package httpmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// KeyFunc returns the key of a request, such as guard.Key{Class: "account", ID: "42"}. A request
// excludes asynqmw.ByJSON("account", …) and guard.Exclusive(ctx, locks, "account:42", …) on the
// same Redis and prefix. Redis and the errors of guards contain the key unchanged, so it must not
// contain secrets. A KeyFunc is called from several goroutines and must not read r.Body.
//
//   - The error guard.Unguarded: the handler runs without a guard.
//   - Any other error, an invalid key (see [guard.Key.Validate]), or a key of more than 512 bytes:
//     the response is 400. The Observer gets event.NoKey, with the Class that the KeyFunc returns
//     next to the error.
type KeyFunc func(r *http.Request) (guard.Key, error)

// ByPathValue returns a KeyFunc that makes the key from the value of the wildcard name in the
// pattern. Behind mux.Handle("POST /accounts/{id}/charges", …) ByPathValue("account", "id") returns
// account:42 for /accounts/42/charges. An empty value is an error.
//
// A path value exists only after the router has run. So wrap the handler that is registered with
// the router, not the router. ServeMux, chi and all routers that call [http.Request.SetPathValue]
// set path values. If the request has no value and its Pattern has no such wildcard, the program is
// wrong, not the client. Then the response is 500, and the Observer gets event.Misconfigured
// once. Behind a router that sets no Pattern an empty value has the same effect.
//
// ByPathValue panics if class is empty, has a colon or more than 128 bytes, or if name is empty or
// has braces.
func ByPathValue(class, name string) KeyFunc {
	var errs []error
	if class == "" {
		errs = append(errs, errors.New("class must not be empty"))
	}
	errs = append(errs, guard.Key{Class: class, ID: "any"}.Validate())
	if name == "" || strings.ContainsAny(name, "{}") {
		errs = append(errs, fmt.Errorf("name is %q, must not be empty or have braces", name))
	}
	must("ByPathValue", errs...)
	return func(r *http.Request) (guard.Key, error) {
		key := guard.Key{Class: class, ID: r.PathValue(name)}
		switch {
		case key.ID != "":
			return key, nil
		case hasWildcard(r.Pattern, name):
			return key, fmt.Errorf("path value %q is empty", name)
		default:
			return key, fmt.Errorf("%w: %q is not in the pattern %q", errMisplaced, name, r.Pattern)
		}
	}
}

// hasWildcard reports whether pattern, of ServeMux or chi, has the wildcard name: {name}, {name...}
// or {name:regexp}.
func hasWildcard(pattern, name string) bool {
	for _, end := range []string{"}", "...}", ":"} {
		if strings.Contains(pattern, "{"+name+end) {
			return true
		}
	}
	return false
}

// ExclusiveOptions are the options of [Exclusive]. The zero value is ready to use.
type ExclusiveOptions struct {
	// Terms apply to each run:
	//
	//   - Wait bounds the time that a request waits for its key. Then it gets Status. Default: the
	//     Locker's Wait (2 s).
	//   - MaxWaiting bounds how many requests of this process wait for one key. A further request
	//     gets Status at once. Default: the Locker's bound, or else 64. 1,000,000 means no bound.
	//   - MaxHold bounds the handler. Long uploads and hijacked connections may need more than the
	//     default. Default: 5 min. The Terms of the Locker do not change this default.
	//   - Name is the Class of the key by default, and "http" for a key without a Class.
	Terms lockcore.Terms
	// Status is the status of the response to a request whose key is busy: http.StatusConflict
	// (409) or http.StatusLocked (423). Default: http.StatusConflict.
	Status int
	// Problem writes the responses of this package, for APIs with another error format. Retry-After
	// is set before the call. Default: [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o ExclusiveOptions) Validate() error {
	var errs []error
	if err := o.Terms.Validate(); err != nil {
		errs = append(errs, errtext.Prefix("httpmw: ExclusiveOptions", err))
	}
	switch o.Status {
	case 0, http.StatusConflict, http.StatusLocked:
	default:
		errs = append(errs, fmt.Errorf("httpmw: ExclusiveOptions.Status is %d, must be http.StatusConflict or http.StatusLocked", o.Status))
	}
	return errtext.Join(errs...)
}

func (o ExclusiveOptions) withDefaults(locks *lockcore.Locker) ExclusiveOptions {
	o.Terms = withDefaults(o.Terms, locks)
	o.Status = cmp.Or(o.Status, http.StatusConflict)
	if o.Problem == nil {
		o.Problem = WriteProblem
	}
	return o
}

// Exclusive returns a middleware that runs one request at a time for each key, in all processes
// with the same Redis and prefix. The key names an account or an upload, for example.
// Exclusive panics if locks or key is nil, or if [ExclusiveOptions.Validate] returns an error.
//
//	request                                       response
//	key is free                                   the handler's
//	key is busy                                   waits up to Terms.Wait, then 409 or 423 with Retry-After
//	the same, and Terms.MaxWaiting requests wait  409 or 423 with Retry-After at once
//	KeyFunc returns guard.Unguarded               the handler's, unguarded
//	KeyFunc returns another error                 400
//	key is invalid or longer than 512 bytes       400
//	ByPathValue in front of the router            500
//	Redis unavailable, locks closed               503 with Retry-After
//	ctx ended before the handler began            503 with Retry-After; the request leaves the wait queue
//
// The responses of this package are problems of RFC 9457. Each kind has its own Type. An
// [Idempotent] around this middleware does not record them, because the handler did not run. If a
// handler needs both, put Idempotent outside. Then a replay does not wait for the key. But a
// request that waits has claimed its Idempotency-Key: if the process is killed meanwhile, the
// outcome of the request is unknown, as if its handler had begun. docs/http.md has the other
// order.
//
// The handler gets the ResponseWriter of the server and an unread body, so it can stream, flush and
// hijack.
//
//   - The request's context is the lease's context. It ends when the client disconnects, as always
//     in net/http, and before the lease can. context.Cause then returns lockcore.ErrLost,
//     ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp.
//   - A guard of the same key inside the handler is nested. guard.Token returns the token of the
//     key.
//   - The key is released when the handler has returned or panicked, and not before. A panic
//     continues. A handler that hijacks the connection holds the key until it returns, and must
//     watch its ctx.
//   - The handler's response is sent, even if the lease was lost meanwhile.
//
// With HTTP/1 net/http detects a disconnect only after the body has been read. So if the client of
// a waiting request with a body disconnects, the request may stay in the wait queue for Terms.Wait.
func Exclusive(locks *lockcore.Locker, key KeyFunc, o ExclusiveOptions) func(http.Handler) http.Handler {
	return newExclusive("Exclusive", &exclusive{locks: locks, key: key}, o, o.Validate())
}

// newExclusive returns a middleware of this package other than Idempotent. invalid is the error of
// its options.
func newExclusive(name string, m *exclusive, o ExclusiveOptions, invalid error) func(http.Handler) http.Handler {
	must(name, notNil("locks", m.locks != nil), notNil("key", m.key != nil), invalid)
	m.ExclusiveOptions = o.withDefaults(m.locks)
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httpmw: " + name + ": handler must not be nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type exclusive struct {
	ExclusiveOptions
	locks  *lockcore.Locker
	key    KeyFunc
	shared bool      // of Shared
	limit  LimitFunc // of Limited, else nil
	rate   RateFunc  // of Throttled, else nil

	wrong sync.Once
}

func (m *exclusive) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key, err := m.key(r)
	if errors.Is(err, guard.Unguarded) {
		next.ServeHTTP(w, r)
		return
	}
	switch {
	case errors.Is(err, errMisplaced):
		m.refuse(w, r, key, err)
		return
	case err == nil:
		err = key.Validate()
	}
	if err != nil {
		m.refuse(w, r, key, errtext.Wrap(errUnnamed, err))
		return
	}
	terms := m.Terms
	terms.Name = m.name(key)
	var limit lockcore.Limit
	if m.limit != nil {
		if limit, err = m.limit(r); err == nil {
			err = checkLimit("the limit of LimitFunc", limit)
		}
		if err != nil {
			m.refuse(w, r, key, errtext.Wrap(errLimit, err))
			return
		}
	}
	if m.rate != nil {
		m.serveThrottled(w, r, key, terms, next)
		return
	}
	ran := false
	err = m.underGuard(r.Context(), key.String(), limit, terms, func(ctx context.Context) error {
		ran = true
		serveUnder(ctx, w, r, next)
		return nil
	})
	switch {
	case !ran:
		m.refuseRun(w, r, key, err)
	case err != nil: // its response is valid; if it wrote none, an Idempotent around must not record a 200
		eachRun(w, func(outer *running) { outer.cut.Store(true) })
	}
}

// refuseRun refuses a request for err, the error of a guard that did not run the handler.
func (m *exclusive) refuseRun(w http.ResponseWriter, r *http.Request, key guard.Key, err error) {
	switch {
	case errors.Is(err, lockcore.ErrKey):
		err = errtext.Wrap(errUnnamed, err)
	case errors.Is(err, lockcore.ErrBusy) && (m.limit != nil || m.rate != nil):
		err = errtext.Wrap(errFull, err)
	case errors.Is(err, lockcore.ErrBusy):
		err = errtext.Wrap(errTaken, err)
	}
	m.refuse(w, r, key, err)
}

// underGuard runs fn while it holds the key or a share of it.
func (m *exclusive) underGuard(ctx context.Context, key string, limit lockcore.Limit, terms lockcore.Terms, fn func(context.Context) error) error {
	switch {
	case m.shared:
		return guard.Shared(ctx, m.locks, key, terms, fn)
	case m.limit != nil:
		return guard.Limited(ctx, m.locks, key, limit, terms, fn)
	default:
		return guard.Exclusive(ctx, m.locks, key, terms, fn)
	}
}

// name returns the class of key in telemetry.
func (m *exclusive) name(key guard.Key) string { return cmp.Or(m.Terms.Name, key.Class, defaultName) }

func (m *exclusive) refuse(w http.ResponseWriter, r *http.Request, key guard.Key, err error) {
	p := problemOf(r.Context(), err)
	if key.ID != "" {
		p.Key = key.String()
	}
	switch p.Type {
	case TypeResourceUnnamed:
		access.Of(m.locks).Report(r.Context(), event.NoKey{Name: m.name(key)})
	case TypeInternal:
		switch {
		case errors.Is(err, errLimit):
			access.Of(m.locks).Report(r.Context(), event.NoKey{Name: m.name(key)})
		case errors.Is(err, errMisplaced), errors.Is(err, lockcore.ErrUnsupported):
			m.wrong.Do(func() { access.Of(m.locks).Report(r.Context(), event.Misconfigured{Problem: err.Error()}) })
		}
	case TypeBusy:
		p.Status = m.Status
	}
	refuse(w, r, m.Problem, p)
}

// serveUnder runs next on a copy of r with ctx. It copies the form and the pattern back to r,
// because the server removes the files of the form, and telemetry in front reads the route.
func serveUnder(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
	req := r.WithContext(ctx)
	defer func() { r.MultipartForm, r.Pattern = req.MultipartForm, req.Pattern }()
	next.ServeHTTP(w, req)
}
