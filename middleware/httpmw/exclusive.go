package httpmw

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// KeyFunc returns the key of a request, such as guard.Key{Class: "account", ID: "42"}. A request
// excludes asynqmw.ByJSON("account", …) and guard.Exclusive(ctx, locks, "account:42", …) on the same
// Redis and prefix. Redis and the errors of guards contain the key unchanged, so it must not contain
// secrets. A KeyFunc is called from several goroutines and must not read r.Body.
//
//   - The error guard.Unguarded: the handler runs without a guard.
//   - Any other error, a key that [guard.Key.Validate] refuses, or one of more than 512 bytes: the
//     request is refused, and the Observer gets guard.NoKey, with the Class that the KeyFunc returns
//     beside the error.
type KeyFunc func(r *http.Request) (guard.Key, error)

// ByPathValue is what the pattern's wildcard name stands for: behind mux.Handle("POST /accounts/{id}/charges", …)
// ByPathValue("account", "id") makes account:42 of /accounts/42/charges. A value that is empty is an error.
//
// A path value is known when the router has run, not before: wrap the handler that is given to the router, never the
// router. ServeMux sets path values, and so do chi and any other router that calls [http.Request.SetPathValue]. If the
// request has no such value and its Pattern has no such wildcard, that is a mistake of the program, not of the client.
// Then the request is answered 500, and the Observer gets lockcore.Misconfigured once. Behind a router that sets no
// Pattern an empty value gets the same answer.
//
// It panics if class is empty, has a colon or more than 128 bytes, and if name is empty or has braces.
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

// hasWildcard reports whether pattern, of ServeMux or chi, has the wildcard name: {name}, {name...} or {name:regexp}.
func hasWildcard(pattern, name string) bool {
	for _, end := range []string{"}", "...}", ":"} {
		if strings.Contains(pattern, "{"+name+end) {
			return true
		}
	}
	return false
}

// ExclusiveOptions of [Exclusive] and [Shared]. The zero value is ready to use.
type ExclusiveOptions struct {
	// Terms of each run. Wait is how long a request waits for its key, by default the Locker's (2 s);
	// then it is answered with Status. MaxWaiting is how many requests of this process wait for one
	// key: one more is answered with Status at once. By default it is the Locker's, or 64 if the Locker
	// has none. 1,000,000 has no effect. MaxHold bounds the handler, by default to 5 min, whatever the
	// Locker's own Terms say: long uploads and hijacked connections may need more. Name is the Class
	// of the key by default, and "http" for a key without a Class. Limit and Weight must be 0, see
	// [Limited].
	Terms lockcore.Terms
	// Status of the answer to a request whose key is busy: http.StatusConflict (409), the default, or
	// http.StatusLocked (423).
	Status int
	// Problem writes the answers of this package, for APIs with an error format of their own. Retry-After is set
	// already. Default [WriteProblem].
	Problem func(w http.ResponseWriter, r *http.Request, p Problem)
}

// Validate reports every problem of o at once; each names the field, its value and the bound.
func (o ExclusiveOptions) Validate() error {
	var errs []error
	if err := o.Terms.Validate(); err != nil {
		errs = append(errs, errtext.Prefix("httpmw: ExclusiveOptions", err))
	}
	if o.Terms.Limit != 0 || o.Terms.Weight != 0 {
		errs = append(errs, fmt.Errorf("httpmw: ExclusiveOptions: Terms.Limit is %d and Terms.Weight is %d, both must be 0: only Limited has a limit and weights", o.Terms.Limit, o.Terms.Weight))
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

// Exclusive returns a middleware under which one request at a time runs for each key, anywhere on the same Redis and
// prefix: an account, an upload. It panics if locks or key is nil or o is not valid; [ExclusiveOptions.Validate] tells
// before.
//
//	the key is free                             runs
//	another holder has it                       waits up to Terms.Wait for its turn, then 409 or 423 with Retry-After
//	the same while Terms.MaxWaiting wait        409 or 423 with Retry-After at once
//	the key function returns guard.Unguarded    runs, unguarded
//	it fails · no key, or one above 512 bytes   400
//	ByPathValue in front of the router          500
//	Redis away, locks closed                    503 with Retry-After
//	the request's ctx ends before it runs       the same; leaves the line
//
// These answers are problems of RFC 9457, each with a Type of its own. A refused request has left no trace: an
// [Idempotent] around this middleware does not record the answer. Where both are used Idempotent stands outside, so that
// a replay waits for nobody.
//
// The handler gets the server's ResponseWriter itself and an unread body, so that it can stream, flush and hijack. The
// request's context is that of the lease: it ends with the client's disconnect, as always in net/http, and before the
// lease can; context.Cause then says lockcore.ErrLost, ErrMaxHold, ErrStalled, ErrRevoked or ErrGivenUp. A guard inside the handler
// enters the key that the request has, and guard.Token knows it. The key is given back when the handler has returned, not before, even if it
// panics; the panic passes on. So who hijacks the connection keeps the key until it returns, and must watch the ctx
// itself. The answer is the handler's, also when the lease was lost on the way.
//
// With HTTP/1 net/http learns of a disconnect only when the request's body has been read. A request with a body, whose
// client goes away while it stands in line, may therefore stay there for Terms.Wait.
func Exclusive(locks *lockcore.Locker, key KeyFunc, o ExclusiveOptions) func(http.Handler) http.Handler {
	return newExclusive("Exclusive", &exclusive{locks: locks, key: key}, o, o.Validate())
}

// newExclusive returns a middleware of this package other than Idempotent. invalid says what is wrong with its options.
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

	misplaced sync.Once
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
	limit := 0
	if m.limit != nil {
		if limit, err = m.limit(r); err == nil {
			err = checkLimit("the limit of LimitFunc", limit, terms.Weight)
		}
		if err != nil {
			m.refuse(w, r, key, errtext.Wrap(errLimit, err))
			return
		}
	}
	ran := false
	err = m.hold(r.Context(), key.String(), limit, terms, func(ctx context.Context) error {
		ran = true
		serveUnder(ctx, w, r, next)
		return nil
	})
	switch {
	case ran: // what the handler has answered stands; but if it has said nothing, that is no answer
		if err != nil {
			eachRun(w, func(outer *running) { outer.cut.Store(true) })
		}
	case errors.Is(err, lockcore.ErrKey):
		m.refuse(w, r, key, errtext.Wrap(errUnnamed, err))
	case errors.Is(err, lockcore.ErrBusy) && limit > 0:
		m.refuse(w, r, key, errtext.Wrap(errFull, err))
	case errors.Is(err, lockcore.ErrBusy):
		m.refuse(w, r, key, errtext.Wrap(errTaken, err))
	default:
		m.refuse(w, r, key, err)
	}
}

// hold runs fn while it holds the key, or its share of it.
func (m *exclusive) hold(ctx context.Context, key string, limit int, terms lockcore.Terms, fn func(context.Context) error) error {
	switch {
	case m.shared:
		return guard.Shared(ctx, m.locks, key, terms, fn)
	case limit > 0:
		return guard.Limited(ctx, m.locks, key, limit, terms, fn)
	default:
		return guard.Exclusive(ctx, m.locks, key, terms, fn)
	}
}

// name returns what telemetry calls key.
func (m *exclusive) name(key guard.Key) string { return cmp.Or(m.Terms.Name, key.Class, defaultName) }

func (m *exclusive) refuse(w http.ResponseWriter, r *http.Request, key guard.Key, err error) {
	p := problemOf(r.Context(), err)
	if key.ID != "" {
		p.Key = key.String()
	}
	switch p.Type {
	case TypeResourceUnnamed:
		m.locks.Internal().Report(r.Context(), guard.NoKey{Name: m.name(key)})
	case TypeInternal:
		switch {
		case errors.Is(err, errLimit):
			m.locks.Internal().Report(r.Context(), guard.NoKey{Name: m.name(key)})
		case errors.Is(err, errMisplaced):
			m.misplaced.Do(func() { m.locks.Internal().Report(r.Context(), lockcore.Misconfigured{Problem: err.Error()}) })
		}
	case TypeBusy:
		p.Status = m.Status
	}
	refuse(w, r, m.Problem, p)
}

// serveUnder runs next on r under ctx. The server removes a form's files, and instruments read the route, in the request
// that they know.
func serveUnder(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler) {
	req := r.WithContext(ctx)
	defer func() { r.MultipartForm, r.Pattern = req.MultipartForm, req.Pattern }()
	next.ServeHTTP(w, req)
}
