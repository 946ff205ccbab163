package httpmw

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Scope names the caller that a key belongs to, such as the tenant of the verified credentials. Two
// callers with equal keys never meet if their scopes differ. An error is answered 401, without
// WWW-Authenticate: let authentication in front answer first, or set it in
// IdempotentOptions.Problem. An empty scope is answered 500, because it would mix callers.
type Scope func(*http.Request) (string, error)

// Idempotent returns a middleware that runs the handler once for each Idempotency-Key. It panics if locks or scope is
// nil or o is not valid; [IdempotentOptions.Validate] tells before.
//
//	first time                                  runs; recorded before it is sent
//	same key while the first runs               waits up to Terms.Wait, then 409 with Retry-After
//	the same while Terms.MaxWaiting wait        409 with Retry-After at once
//	same key, same request, done                what was recorded, with Idempotent-Replayed: true
//	same key, other request                     422
//	done, but too large or streamed             409
//	the handler called guard.Ticket             its answer, until the adopter ends, with Retry-After
//	outcome unknown (guard.AtMostOnce)          409
//	no key, a malformed one, two headers        400
//	the scope fails · is empty                  401 · 500
//	body above o.MaxRequest · broken off        413 · 400
//	Redis away, locks closed, time over         503 with Retry-After
//	body read before, wrapped twice, bad record 500
//	a method that is not in o.Methods           runs unguarded, with a key or without
//
// These answers are problems of RFC 9457, each with a Type of its own. An answer that is not recorded (see Store) frees
// the key, and so does a panic, which passes on; with guard.AtMostOnce a panic leaves the outcome unknown.
//
// A handler may hand the work to a job: it calls guard.Ticket with [Key], sends the ticket, and answers,
// mostly with 202. Repetitions get that answer with Retry-After and Idempotent-Replayed: true until the
// job has called [Complete]; then they get the answer of the job. If no process adopts the hold in time,
// or the job dies, the key is abandoned, as after a crash. The ctx of the request ends with guard.Ticket,
// so send the ticket with guard.Detach. If that fails, adopt the ticket and release the lease before the
// handler answers, else repetitions get 409 until the end of the ticket.
//
// The handler writes into memory: a Flush is remembered, not obeyed, until the answer exceeds
// o.MaxResponse or is flushed as text/event-stream. From then on it is streamed. Hijack is refused
// with http.ErrNotSupported; 1xx pass. The request's context is that of the lease: the client's
// disconnect does not end it (see o.CancelOnDisconnect); it ends before the lease can, with the
// same causes as under [Exclusive].
func Idempotent(locks *lockcore.Locker, scope Scope, o IdempotentOptions) func(http.Handler) http.Handler {
	must("Idempotent", notNil("locks", locks != nil), notNil("scope", scope != nil), o.Validate())
	o = o.withDefaults(locks)
	m := &idempotent{IdempotentOptions: o, locks: locks, scope: scope, guard: guard.OnceOptions{
		Terms: o.Terms, Keep: o.Keep, Mode: o.Mode, Codec: codec{}, MaxResult: o.MaxResponse + maxHeaders,
	}}
	return func(next http.Handler) http.Handler {
		if next == nil {
			panic("httpmw: Idempotent: handler must not be nil")
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.serve(w, r, next) })
	}
}

type idempotent struct {
	IdempotentOptions
	locks *lockcore.Locker
	scope Scope
	guard guard.OnceOptions // without the fingerprint of a request

	noScope, bodyGone, twice sync.Once
}

func (m *idempotent) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	if !slices.Contains(m.Methods, r.Method) {
		next.ServeHTTP(w, r)
		return
	}
	client, err := m.clientKey(r.Header)
	if m.Optional && errors.Is(err, errKeyMissing) {
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
	m.refuse(w, r, op.key, err)
}

// warn tells the Observer what an operator should hear.
func (m *idempotent) warn(r *http.Request, err error) {
	misconfigured := func() {
		m.locks.Internal().Report(r.Context(), lockcore.Misconfigured{Problem: err.Error()})
	}
	switch {
	case errors.Is(err, errKeyMissing):
		m.locks.Internal().Report(r.Context(), guard.NoKey{Name: m.Terms.Name})
	case errors.Is(err, errNoScope):
		m.noScope.Do(misconfigured)
	case errors.Is(err, errBodyGone):
		m.bodyGone.Do(misconfigured)
	case errors.Is(err, lockcore.ErrNested):
		m.twice.Do(misconfigured)
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
		return operation{}, errtext.Wrap(errScope, err)
	}
	if scope == "" {
		return operation{}, errNoScope
	}
	path, query := target(r)
	op := operation{key: digest(m.Secret, scope, r.Method, path, client)}
	if op.body, err = readBody(r, m.MaxRequest); err != nil {
		return op, err
	}
	op.fingerprint = m.fingerprint(r, path, query, op.body)
	return op, nil
}

// once answers r by running next or by replaying. An error is still to be answered.
func (m *idempotent) once(w http.ResponseWriter, r *http.Request, next http.Handler, op operation) error {
	// While the request waits, the client's disconnect ends it; from the start of the handler on it does not.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	stay := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })
	defer stay()

	var own *response // what next answered to this request
	var holding context.Context
	var interim access.Interim
	o := m.guard
	o.Fingerprint = op.fingerprint
	stored, err := guard.OnceValue(access.WithInterim(ctx, &interim), m.locks, op.key, o, func(ctx context.Context) (a response, err error) {
		//planted:gone-before-the-run
		if !m.CancelOnDisconnect && !stay() { // the client has gone, even if ctx does not know yet
			return a, guard.NoEffect(cmp.Or(context.Cause(r.Context()), context.Canceled))
		}
		holding = access.WithInterim(ctx, nil) //nolint:fatcontext // it is for this key only, and the function runs once
		own, err = m.run(holding, w, r, next, op)
		if err != nil {
			return a, err
		}
		return own.kept(m.IdempotentOptions, w.Header()), nil // the recorder has not changed the headers of w
	})
	if busy, ok := errors.AsType[*lockcore.BusyError](err); ok && own == nil && interim.Answer != nil {
		return m.replayInterim(w, r, interim.Answer, busy)
	}
	if own == nil {
		return m.replay(w, r, stored, err)
	}
	if stored.Outcome == guard.HandedOver { // before the client can know the answer and repeat the request
		m.keepInterim(holding, op.key, own, w.Header())
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
		m.locks.Internal().Report(r.Context(), lockcore.BadRecord{Err: err})
		return errtext.Wrap(lockcore.ErrRecord, err)
	case err != nil && !errors.Is(err, guard.ErrNoResult):
		return err
	case stored.Tombstone || stored.Value.streamed:
		return errDropped
	}
	w.Header().Set(HeaderReplayed, "true")
	stored.Value.write(w, r.Method)
	return nil
}

// run runs next on r with its body under ctx. It returns what next answered, or nil if it was cut short; and why that is not to be recorded.
func (m *idempotent) run(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler, op operation) (*response, error) {
	run := &running{key: op.key}
	rec := &recorder{w: w, run: run, limit: m.MaxResponse, deaf: !m.CancelOnDisconnect, header: w.Header().Clone()}
	defer rec.end()
	serveUnder(context.WithValue(ctx, runningKey{}, run), rec, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		giveBody(r, op.body)
		next.ServeHTTP(w, r)
	}))
	own := rec.response()
	switch {
	case own.silent && (ctx.Err() != nil && !handedOver(ctx) || run.cut.Load()): //planted:cut-short-in-silence
		// It obeyed its ctx and returned: net/http's 200 is nobody's answer.
		return nil, guard.Unknown(m.cutShort(context.Cause(ctx)))
	case run.unknown.Load():
		eachRun(w, func(outer *running) { outer.unknown.Store(true) })
		return own, guard.Unknown(errDropped)
	case run.noEffect.Load():
		eachRun(w, func(outer *running) { outer.noEffect.Store(true) })
		return own, guard.NoEffect(statusError(own.status))
	case !m.keeps(own):
		return own, guard.NoEffect(statusError(own.status))
	}
	return own, nil
}

// cutShort is the error of a handler that has not answered. cause is why its ctx ended, or nil if only the ctx of an
// inner guard ended.
func (m *idempotent) cutShort(cause error) error {
	err := errCut
	if m.Mode == guard.AtMostOnce {
		err = errUnknown
	}
	if cause != nil {
		err = errtext.Wrap(err, cause)
	}
	return err
}
