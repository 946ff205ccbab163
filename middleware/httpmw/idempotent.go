package httpmw

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/errtext"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Scope returns the caller that a key belongs to, such as the tenant of the verified credentials.
// Two callers with equal keys share no record if their scopes differ. If Scope returns an error,
// the response is 401 without WWW-Authenticate. Let authentication in front of Idempotent answer
// such a request, or set the header in IdempotentOptions.Problem. If the scope is empty, the
// response is 500, because an empty scope would mix callers.
type Scope func(*http.Request) (string, error)

// Idempotent returns a middleware that runs the handler once for each Idempotency-Key. It panics if
// locks or scope is nil, or if [IdempotentOptions.Validate] returns an error.
//
//	request                                          response
//	first with its key                               the handler's, recorded before it is sent
//	key is held by another run                       waits up to Terms.Wait, then 409 with Retry-After
//	the same, and Terms.MaxWaiting requests wait     409 with Retry-After at once
//	key is done                                      the recorded one, with Idempotent-Replayed: true
//	key was used for another request                 422
//	key is done, response was too large or streamed  409
//	the handler called guard.Ticket                  the handler's, with Retry-After, until the adopter ends
//	key is abandoned, with guard.AtMostOnce          409
//	no key, a malformed key, or two headers          400
//	Scope returns an error                           401
//	Scope returns an empty string                    500
//	body above o.MaxRequest                          413
//	body cannot be read to its end                   400
//	Redis unavailable, locks closed, ctx ended       503 with Retry-After
//	body was read before, Idempotent inside itself   500
//	record does not decode                           500
//	method is not in o.Methods                       the handler's, unguarded
//
// The responses of this package are problems of RFC 9457. Each kind has its own Type. A response
// that is not recorded (see Store) releases the key, or leaves it abandoned after a takeover. A
// panic of the handler continues. Its key is then
//
//   - released, or after a takeover abandoned, if the handler has written nothing and has not
//     called [Unknown]
//   - done without a response, if the handler's response was streamed with a status that is
//     recorded
//   - abandoned otherwise, and always with guard.AtMostOnce
//
// A handler may transfer its work to a job: it calls guard.Ticket with [Key], sends the ticket,
// and responds, usually with 202.
//
//   - Repetitions get that response with Retry-After and Idempotent-Replayed: true, until the job
//     calls [Complete]. Then they get the response of the job.
//   - If no process adopts the hold in time, or the job dies, the key is abandoned, as after a
//     crash.
//   - guard.Ticket cancels the ctx of the request, so send the ticket with guard.Detach. If that
//     fails, adopt the ticket and release the lease before the handler responds. Otherwise
//     repetitions get 409 until the end of the ticket.
//
// The handler's response is collected in memory, recorded, and then sent. A Flush sends nothing
// before that, so clients see no part of a response that is recorded. A response is streamed, which
// means sent before it is complete, from the moment when it exceeds o.MaxResponse, or when the
// handler flushes a response with Content-Type text/event-stream. A streamed response is not
// recorded. Responses with a status of 1xx are sent at once. Hijack fails with
// http.ErrNotSupported. If the handler then sets no status, the key is abandoned. The writer is no
// http.Pusher.
//
// The handler must write its response before it returns, and to the ResponseWriter that it gets. If
// Idempotent sees that it does not, the Observer gets event.Misconfigured, once. gin, echo and fiber
// need an adapter, see docs/frameworks.md.
//
// The request's context is the lease's context. The client's disconnect does not cancel it (see
// o.CancelOnDisconnect). It ends before the lease can, with the same causes as under [Exclusive].
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

	noScope, bodyGone, twice, unsupported, around sync.Once
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

// warn reports the errors that an operator should know to the Observer.
func (m *idempotent) warn(r *http.Request, err error) {
	misconfigured := func() {
		access.Of(m.locks).Report(r.Context(), event.Misconfigured{Problem: err.Error()})
	}
	switch {
	case errors.Is(err, errKeyMissing):
		access.Of(m.locks).Report(r.Context(), event.NoKey{Name: m.Terms.Name})
	case errors.Is(err, errNoScope):
		m.noScope.Do(misconfigured)
	case errors.Is(err, errBodyGone):
		m.bodyGone.Do(misconfigured)
	case errors.Is(err, lockcore.ErrNested):
		m.twice.Do(misconfigured)
	case errors.Is(err, lockcore.ErrUnsupported):
		m.unsupported.Do(misconfigured)
	}
}

// operation is a request with its key.
type operation struct {
	key         string // in Redis
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

// once runs next or replays its record. It writes no response if it returns an error.
func (m *idempotent) once(w http.ResponseWriter, r *http.Request, next http.Handler, op operation) error {
	// The client's disconnect ends the call while it waits for the key. From the start of the
	// handler on it does not.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	defer cancel(nil)
	stay := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })
	defer stay()

	var own *response // of next to this request
	var holding context.Context
	var interim access.Interim
	var panicked access.Panicked
	o := m.guard
	o.Fingerprint = op.fingerprint
	stored, err := guard.OnceValue(access.WithPanicked(access.WithInterim(ctx, &interim), &panicked), m.locks, op.key, o, func(ctx context.Context) (a response, err error) {
		//planted:gone-before-the-run
		if !m.CancelOnDisconnect && !stay() { // the client has disconnected; ctx may not be canceled yet
			return a, guard.NoEffect(cmp.Or(context.Cause(r.Context()), context.Canceled))
		}
		holding = access.WithPanicked(access.WithInterim(ctx, nil), nil) //nolint:fatcontext // both are for this key only, and the function runs once
		own, err = m.run(holding, w, r, next, op, &panicked)
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
	if stored.Outcome == guard.Transferred { // before the client gets the response and can repeat the request
		m.keepInterim(holding, op.key, own, w.Header())
	}
	if !own.streamed { // sent also if the record could not be stored
		clear(w.Header())
		own.write(w)
	}
	return nil
}

// replay writes the recorded response of another run, or returns why it cannot.
func (m *idempotent) replay(w http.ResponseWriter, r *http.Request, stored guard.Result[response], err error) error {
	switch {
	case errors.As(err, new(*guard.RecordedError)): // this package records no errors
		access.Of(m.locks).Report(r.Context(), event.BadRecord{Err: err})
		return errtext.Wrap(lockcore.ErrRecord, err)
	case err != nil && !errors.Is(err, guard.ErrNoResult):
		return err
	case stored.NotKept || stored.Value.streamed:
		return errDropped
	}
	w.Header().Set(HeaderReplayed, "true")
	stored.Value.write(w)
	return nil
}

// run runs next on r with its body under ctx. It returns the response of next, or nil if next was
// interrupted without a response. The error says why the response must not be recorded. If next
// panics, run sets panicked.
func (m *idempotent) run(ctx context.Context, w http.ResponseWriter, r *http.Request, next http.Handler, op operation, panicked *access.Panicked) (*response, error) {
	run := &running{key: op.key}
	rec := &recorder{
		w: w, run: run, limit: m.MaxResponse, deaf: !m.CancelOnDisconnect, header: w.Header().Clone(),
		late:  func() { m.reportAround(r) },
		atEnd: func(f func()) { context.AfterFunc(ctx, f) },
	}
	contentType := w.Header()["Content-Type"]
	defer func() { *panicked = m.afterPanic(run, rec) }() // has no effect if next has returned
	serveUnder(context.WithValue(ctx, runningKey{}, run), rec, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		giveBody(r, op.body)
		next.ServeHTTP(w, r)
	}))
	own := rec.response()
	if own.silent && !slices.Equal(w.Header()["Content-Type"], contentType) {
		// The handler has written to w, not to rec. So its response was sent and is not known. It
		// must not be overwritten, and the effect may be done.
		m.reportAround(r)
		own.silent, own.streamed = false, true
	}
	switch {
	case own.silent && (ctx.Err() != nil && !transferred(ctx) || run.cut.Load()): //planted:cut-short-in-silence
		// The handler returned without a response because its context, or the context of a guard
		// inside, ended. net/http's implicit 200 must not be recorded.
		return nil, guard.Unknown(m.cutShort(context.Cause(ctx)))
	case run.unknown.Load():
		eachRun(w, func(outer *running) { outer.unknown.Store(true) })
		return own, guard.Unknown(errDropped)
	case own.implied:
		return own, guard.Unknown(http.ErrNotSupported)
	case run.noEffect.Load():
		eachRun(w, func(outer *running) { outer.noEffect.Store(true) })
		return own, guard.NoEffect(statusError(own.status))
	case !m.keeps(own):
		return own, guard.NoEffect(statusError(own.status))
	}
	return own, nil
}

// afterPanic ends rec, and returns how the run ends if its handler panicked. A panic before any
// response releases the key, or leaves it abandoned with guard.AtMostOnce. Otherwise the handler
// may have had its effect:
//
//   - The client has got a status that is recorded: the key is done without a response, as after a
//     streamed response.
//   - The client has got no status, or one after which it may repeat the request: the key is
//     abandoned. What the handler has written may be incomplete, and must not be replayed.
func (m *idempotent) afterPanic(run *running, rec *recorder) access.Panicked {
	own := rec.end()
	if own.streamed && m.keeps(own) && !run.unknown.Load() {
		return access.Panicked{Value: own.kept(m.IdempotentOptions, nil)}
	}
	return access.Panicked{Abandon: own.status != 0 || run.unknown.Load()} //planted:panic-after-a-response
}

// reportAround reports a response that the middleware has not recorded because it did not see it.
func (m *idempotent) reportAround(r *http.Request) {
	m.around.Do(func() {
		access.Of(m.locks).Report(context.WithoutCancel(r.Context()), event.Misconfigured{Problem: errAround.Error()})
	})
}

// cutShort returns the error of a handler that was interrupted without a response. cause is why its
// ctx ended, or nil if only the ctx of a guard inside ended.
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
