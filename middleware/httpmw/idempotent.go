package httpmw

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Scope names the caller that a key belongs to, such as the tenant of the verified credentials. Two callers with equal
// keys never meet if their scopes differ. An error is answered 401; an empty scope 500, for it would mix callers.
type Scope func(*http.Request) (string, error)

// Idempotent returns a middleware that runs the handler once for each Idempotency-Key. It panics if locks or scope is
// nil or o is not valid; [Options.Validate] tells before.
//
//	first time                                  runs; recorded before it is sent
//	same key while the first runs               waits up to Terms.Wait, then 409 with Retry-After
//	same key, same request, done                what was recorded, with Idempotent-Replayed: true
//	same key, other request                     422
//	done, but too large or streamed             409
//	outcome unknown (guard.AtMostOnce)          409
//	no key, a malformed one, two headers        400; without one other methods than Options.Methods pass
//	the scope fails · is empty                  401 · 500
//	body above Options.MaxRequest               413
//	Redis away                                  503 with Retry-After
//
// These answers are problems of RFC 9457, each with a Type of its own. An answer that is not recorded (see Store) frees
// the key, and so does a panic, which passes on; with guard.AtMostOnce a panic leaves the outcome unknown.
//
// The handler writes into memory: a Flush is remembered, not obeyed, until the answer exceeds Options.MaxResponse or is
// flushed as text/event-stream. From then on it is streamed. Hijack is refused with http.ErrNotSupported; 1xx pass.
// The request's context is that of the lease, see [Key].
func Idempotent(locks *lockcore.Locker, scope Scope, o Options) func(http.Handler) http.Handler {
	if locks == nil || scope == nil {
		panic("httpmw: Idempotent: locks and scope must not be nil")
	}
	if err := o.Validate(); err != nil {
		panic(err)
	}
	m := &idempotent{Options: o.withDefaults(), locks: locks, scope: scope}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httpmw: Idempotent: handler must not be nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type idempotent struct {
	Options
	locks *lockcore.Locker
	scope Scope

	noScope, bodyGone sync.Once
}

func (m *idempotent) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	client, err := clientKey(r.Header)
	if !slices.Contains(m.Methods, r.Method) || m.Optional && errors.Is(err, errNoKey) {
		next.ServeHTTP(w, r)
		return
	}
	var op operation
	if err == nil {
		op, err = m.operation(r, client)
	}
	if err == nil {
		err = m.once(w, r, next, op)
	}
	if err == nil {
		return
	}
	m.warn(r, err)
	m.refuse(w, r, err)
}

// warn tells the Observer what an operator should hear.
func (m *idempotent) warn(r *http.Request, err error) {
	misconfigured := func() {
		m.locks.Report(r.Context(), lockcore.Misconfigured{Problem: err.Error()})
	}
	switch {
	case errors.Is(err, errNoKey):
		m.locks.Report(r.Context(), lockcore.NoKey{Name: m.Terms.Name})
	case errors.Is(err, errNoScope):
		m.noScope.Do(misconfigured)
	case errors.Is(err, errBodyGone):
		m.bodyGone.Do(misconfigured)
	}
}

// operation is what a request asks for.
type operation struct {
	key         string // as Redis sees it
	fingerprint []byte
	body        []byte
}

func (m *idempotent) operation(r *http.Request, client string) (operation, error) {
	scope, err := m.scope(r)
	if err != nil {
		return operation{}, fmt.Errorf("%w: %w", errScope, err)
	}
	if scope == "" {
		return operation{}, errNoScope
	}
	body, err := readBody(r, m.MaxRequest)
	if err != nil {
		return operation{}, err
	}
	path, query := target(r)
	return operation{
		key: digest(m.Secret, scope, r.Method, path, client), fingerprint: m.fingerprint(r, path, query, body), body: body,
	}, nil
}

// once answers r by running next or by replaying. An error is still to be answered.
func (m *idempotent) once(w http.ResponseWriter, r *http.Request, next http.Handler, op operation) error {
	// While the request waits, the client's disconnect ends it; from the start of the handler on it does not.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	stay := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })
	defer stay()

	var own *response // what next answered to this request
	stored, err := guard.OnceValue(ctx, m.locks, op.key, guard.OnceOptions{
		Terms: m.Terms, Keep: m.Keep, Mode: m.Mode, Codec: codec{}, MaxResult: m.MaxResponse + maxHeaders,
		Fingerprint: op.fingerprint,
	}, func(ctx context.Context) (response, error) {
		if !m.CancelOnDisconnect && !stay() {
			return response{}, guard.NoEffect(context.Cause(ctx))
		}
		run := &running{key: op.key}
		own = m.run(context.WithValue(ctx, runningKey{}, run), w, r, next, op.body)
		if run.noEffect.Load() || !m.keeps(own.status) {
			return response{}, guard.NoEffect(errDropped)
		}
		return own.kept(m.Options), nil
	})
	if own == nil {
		return m.replay(w, r, stored, err)
	}
	if !own.streamed { // whatever became of its record, this is the true answer
		clear(w.Header())
		own.write(w, r.Method)
	}
	return nil
}

// replay answers r with what another run recorded, or returns why not.
func (m *idempotent) replay(w http.ResponseWriter, r *http.Request, stored guard.Result[response], err error) error {
	switch {
	case errors.As(err, new(*guard.RecordedError)): // this package records no errors
		m.locks.Report(r.Context(), lockcore.BadRecord{Err: err})
		return fmt.Errorf("%w: %w", lockcore.ErrRecord, err)
	case err != nil && !errors.Is(err, guard.ErrNoResult):
		return err
	case stored.Tombstone || stored.Value.streamed:
		return errDropped
	}
	w.Header().Set(HeaderReplayed, "true")
	stored.Value.write(w, r.Method)
	return nil
}

// run runs next on r with its body under ctx.
func (m *idempotent) run(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler, body []byte) *response {
	rec := &recorder{w: w, limit: m.MaxResponse, deaf: !m.CancelOnDisconnect, header: w.Header().Clone()}
	serveUnder(ctx, rec, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		giveBody(r, body)
		next.ServeHTTP(w, r)
	}))
	return rec.response()
}
