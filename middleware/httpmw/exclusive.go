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

// KeyFunc finds what a request must have for itself. The key "account:42" meets guard.Exclusive(ctx, locks,
// "account:42", …) and asynqmw.ByJSON("account", …) on the same Redis and prefix. It stands in Redis as it is, and in
// the errors of guards: put no secrets into it. A KeyFunc must not read r.Body, which is the handler's, and is called
// from several goroutines.
//
// ErrNoKey says that this request needs no guard: its handler runs as if there were none. With any other error, an empty
// key and one above 512 bytes the request is refused, and the Observer hears lockcore.NoKey.
type KeyFunc func(r *http.Request) (string, error)

// ErrNoKey is what a KeyFunc returns for a request that shall run unguarded.
var ErrNoKey = errors.New("httpmw: request needs no key")

// ByPathValue is what the pattern's wildcard name stands for: behind mux.Handle("POST /accounts/{id}/charges", …)
// ByPathValue("account", "id") makes account:42 of /accounts/42/charges. A value that is empty is an error.
//
// A path value is known when the router has run, not before: wrap the handler that is given to the router, never the
// router. ServeMux sets path values, and so do chi and any other router that calls [http.Request.SetPathValue]. If the
// request has no such value and its Pattern has no such wildcard, that is a mistake of the program, not of the client.
// Then the request is answered 500, and the Observer gets lockcore.Misconfigured once. Behind a router that sets no
// Pattern an empty value gets the same answer.
//
// It panics on a class that is empty or has a colon, and on a name that is empty or has braces.
func ByPathValue(class, name string) KeyFunc {
	if class == "" || strings.Contains(class, ":") {
		panic(fmt.Sprintf("httpmw: ByPathValue: class is %q, must not be empty or have a colon", class))
	}
	if name == "" || strings.ContainsAny(name, "{}") {
		panic(fmt.Sprintf("httpmw: ByPathValue: name is %q, must not be empty or have braces", name))
	}
	return func(r *http.Request) (string, error) {
		value := r.PathValue(name)
		switch {
		case value != "":
			return class + ":" + value, nil
		case hasWildcard(r.Pattern, name):
			return "", fmt.Errorf("path value %q is empty", name)
		default:
			return "", fmt.Errorf("%w: %q is not in the pattern %q", errMisplaced, name, r.Pattern)
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

// ExclusiveOptions of [Exclusive]. The zero value is ready to use.
type ExclusiveOptions struct {
	// Terms of each run. Wait is how long a request stands in line for its key, by default the Locker's (2 s); then it is
	// answered with Status. MaxHold bounds the handler, by default to 5 min, whatever the Locker's own Terms say: long
	// uploads and connections that are taken over may need more. Name is "http" by default; set it to the class of the key,
	// such as "account", as asynqmw does.
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
	switch o.Status {
	case 0, http.StatusConflict, http.StatusLocked:
	default:
		errs = append(errs, fmt.Errorf("httpmw: ExclusiveOptions.Status is %d, must be http.StatusConflict or http.StatusLocked", o.Status))
	}
	return errtext.Join(errs...)
}

func (o ExclusiveOptions) withDefaults() ExclusiveOptions {
	o.Terms.Name = cmp.Or(o.Terms.Name, defaultName)
	o.Terms.MaxHold = cmp.Or(o.Terms.MaxHold, defaultHold)
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
//	the key function answers ErrNoKey           runs, unguarded
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
	if locks == nil || key == nil {
		panic("httpmw: Exclusive: locks and key must not be nil")
	}
	if err := o.Validate(); err != nil {
		panic(err)
	}
	m := &exclusive{ExclusiveOptions: o.withDefaults(), locks: locks, key: key}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httpmw: Exclusive: handler must not be nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type exclusive struct {
	ExclusiveOptions
	locks *lockcore.Locker
	key   KeyFunc

	misplaced sync.Once
}

func (m *exclusive) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key, err := m.key(r)
	if errors.Is(err, ErrNoKey) {
		next.ServeHTTP(w, r)
		return
	}
	switch {
	case errors.Is(err, errMisplaced):
		m.refuse(w, r, key, err)
		return
	case err != nil:
		m.refuse(w, r, key, errtext.Wrap(errUnnamed, err))
		return
	}
	ran := false
	err = guard.Exclusive(r.Context(), m.locks, key, m.Terms, func(ctx context.Context) error {
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
	case errors.Is(err, lockcore.ErrBusy):
		m.refuse(w, r, key, errtext.Wrap(errTaken, err))
	default:
		m.refuse(w, r, key, err)
	}
}

func (m *exclusive) refuse(w http.ResponseWriter, r *http.Request, key string, err error) {
	p := problemOf(r.Context(), err)
	p.Key = key
	switch p.Type {
	case TypeResourceUnnamed:
		m.locks.Report(r.Context(), lockcore.NoKey{Name: m.Terms.Name})
	case TypeInternal:
		if errors.Is(err, errMisplaced) {
			m.misplaced.Do(func() { m.locks.Report(r.Context(), lockcore.Misconfigured{Problem: err.Error()}) })
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
