package httpmw

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

const typeBase = "https://github.com/holdfast-go/holdfast/blob/main/docs/problems.md#"

// The types of problem that this package answers with. They do not change, and each is the address of its description.
const (
	TypeKeyMissing       = typeBase + "key-missing"       // 400
	TypeKeyMalformed     = typeBase + "key-malformed"     // 400
	TypeBodyUnreadable   = typeBase + "body-unreadable"   // 400: the client broke off
	TypeResourceUnnamed  = typeBase + "resource-unnamed"  // 400: Exclusive: the request does not say what it is about
	TypeUnauthorized     = typeBase + "unauthorized"      // 401: the scope function failed
	TypeInProgress       = typeBase + "in-progress"       // 409: a request with this key is running; repeat later
	TypeBusy             = typeBase + "busy"              // 409, 423: Exclusive: another request or job has what this one needs; repeat later
	TypeLimitReached     = typeBase + "limit-reached"     // 429: Limited: no room for the request under the limit; repeat later
	TypeInterrupted      = typeBase + "interrupted"       // 503: the handler was cut short; repeat later
	TypeOutcomeUnknown   = typeBase + "outcome-unknown"   // 409: an earlier run never said how it ended
	TypeNotReplayable    = typeBase + "not-replayable"    // 409: done, but the answer was not kept
	TypeBodyTooLarge     = typeBase + "body-too-large"    // 413
	TypeKeyReused        = typeBase + "key-reused"        // 422: this key belongs to another request
	TypeInternal         = typeBase + "internal"          // 500: the scope is empty, or a mistake in the program
	TypeRecordUnreadable = typeBase + "record-unreadable" // 500: done, but the record does not decode
	TypeUnavailable      = typeBase + "unavailable"       // 503: Redis is away, the process shuts down, or the request's time is over; repeat later
)

// retryUnavailable is the Retry-After of a 503.
const retryUnavailable = 5 * time.Second

// Problem is an answer of this package, in the words of RFC 9457. The handler did not run for this request, or with
// [TypeInterrupted] did not answer it.
type Problem struct {
	Type       string        // one of the constants above
	Title      string        // the same for every problem of the type
	Status     int           // of the answer
	Detail     string        // what the client can do
	RetryAfter time.Duration // what the header says, or 0
	Key        string        // that the request was about, as Key says it inside the handler, or Exclusive's; "" before it is known. Not for the client
	Err        error         // why: for logs, not for the client. It names no key except Key and those in errors of a KeyFunc, Scope or ValidKey
}

// WriteProblem writes p as application/problem+json. It is the default of IdempotentOptions.Problem
// and needs nothing of r. Before any such function is called, Retry-After and Cache-Control:
// no-store are set, and headers that were set for another answer are removed. Content-Encoding
// stays, as http.Error leaves it: who has set it in front of us may be compressing what we write
// (https://go.dev/issue/66343).
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) { //nolint:revive // r has a name for the documentation
	body, _ := json.Marshal(map[string]any{"type": p.Type, "title": p.Title, "status": p.Status, "detail": p.Detail})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// otherAnswers are the headers that would lie about a problem. Content-Length is the server's to count.
var otherAnswers = []string{
	"Accept-Ranges", "Content-Disposition", "Content-Language", "Content-Length", "Content-Location", "Content-Range", "Etag",
	"Expires", "Last-Modified", "Location", "Trailer",
}

// refuse answers r with the problem that err is.
func (m *idempotent) refuse(w http.ResponseWriter, r *http.Request, key string, err error) {
	p := problemOf(r.Context(), err)
	p.Key, p.Detail = key, strings.ReplaceAll(p.Detail, HeaderKey, m.Header)
	refuse(w, r, m.Problem, p)
}

// refuse answers r with p. It asks for a repetition, so an Idempotent around must not record it.
func refuse(w http.ResponseWriter, r *http.Request, write func(http.ResponseWriter, *http.Request, Problem), p Problem) {
	eachRun(w, func(outer *running) {
		if errors.Is(p.Err, errCut) {
			outer.unknown.Store(true)
		} else {
			outer.noEffect.Store(true)
		}
	})
	h := w.Header()
	for _, name := range otherAnswers {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	write(w, r, p)
}

// problemOf is the problem that err is. ctx is the request's own.
func problemOf(ctx context.Context, err error) Problem {
	p := internal
	if i := slices.IndexFunc(problems, func(row problem) bool { return errors.Is(err, row.err) }); i >= 0 {
		p = problems[i].Problem
	} else if timeOver(ctx, err) {
		p = unavailable
	}
	if p.Type == TypeInProgress || p.Type == TypeBusy || p.Type == TypeLimitReached {
		if busy, ok := errors.AsType[*lockcore.BusyError](err); ok {
			p.RetryAfter = busy.RetryAfter()
		}
	}
	p.Err = err
	return p
}

// timeOver says that err is the end of the request's own ctx: its client has gone, or what stands in front of us has
// bounded its time, perhaps with a cause of its own.
func timeOver(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// Why a request is refused before Redis is asked, and errDropped, why a done one is after it.
var (
	errKeyMissing   = errors.New("httpmw: no " + HeaderKey)
	errKeyMalformed = errors.New("httpmw: malformed " + HeaderKey)
	errUnnamed      = errors.New("httpmw: no key for Exclusive")
	// A mistake of the program, see ByPathValue.
	errMisplaced = errors.New("httpmw: no such path value; wrap the handler that is given to the router, not the router")
	errScope     = errors.New("httpmw: scope")
	errNoScope   = errors.New("httpmw: scope is empty")
	errTooLarge  = errors.New("httpmw: request body is too large")
	errBody      = errors.New("httpmw: read request body")
	errBodyGone  = errors.New("httpmw: the request body was read before Idempotent; put Idempotent in front of whatever reads or parses it")
	errDropped   = errors.New("httpmw: done, but the answer was not kept")
	errTaken     = errors.New("httpmw: another request has the key") // of Exclusive; it wraps what lockcore says
	errFull      = errors.New("httpmw: the limit is reached")        // of Limited, as errTaken
	errLimit     = errors.New("httpmw: limit")                       // a mistake of the program
)

// Why an answer that was not given is not recorded: the handler was cut short, with guard.AtMostOnce for good.
var (
	errCut     = errors.New("httpmw: the handler was cut short")
	errUnknown = fmt.Errorf("%w: its outcome is unknown", errCut)
)

type problem struct {
	err error
	Problem
}

// problems is the one place where an error becomes an answer. Our own come first: what a user's function returns may
// wrap anything.
var problems = []problem{
	{errKeyMissing, Problem{
		Type: TypeKeyMissing, Status: http.StatusBadRequest, Title: "Idempotency-Key is missing",
		Detail: "This operation needs an Idempotency-Key header: a value that is new for each operation and the same for its repetitions.",
	}},
	{errKeyMalformed, Problem{
		Type: TypeKeyMalformed, Status: http.StatusBadRequest, Title: "Idempotency-Key is malformed",
		Detail: "The Idempotency-Key header must appear once, with 1 to 255 printable ASCII characters, bare without a comma or as a quoted string. " +
			"This API may ask for more, such as a UUID.",
	}},
	{errMisplaced, internal},
	{errUnnamed, Problem{
		Type: TypeResourceUnnamed, Status: http.StatusBadRequest, Title: "Resource is not named",
		Detail: "The request does not say, or not in a way that can be used, what it needs for itself.",
	}},
	{errScope, Problem{
		Type: TypeUnauthorized, Status: http.StatusUnauthorized, Title: "Caller is not known",
		Detail: "An Idempotency-Key belongs to an authenticated caller.",
	}},
	{errNoScope, internal},
	{errBodyGone, internal},
	{errTooLarge, Problem{
		Type: TypeBodyTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "Request body is too large",
		Detail: "The body is larger than this operation takes.",
	}},
	{errBody, Problem{
		Type: TypeBodyUnreadable, Status: http.StatusBadRequest, Title: "Request body cannot be read",
		Detail: "The request ended before its body did. Send it again, with the same Idempotency-Key.",
	}},
	{errDropped, Problem{
		Type: TypeNotReplayable, Status: http.StatusConflict, Title: "Answer was not kept",
		Detail: "The operation is done and will not run again, but its answer was too large or was streamed. Read its result instead.",
	}},
	{errTaken, Problem{
		Type: TypeBusy, Status: http.StatusConflict, RetryAfter: time.Second, Title: "Resource is busy",
		Detail: "Another request or job is working on the same resource. This request did not run the operation. Send it again later.",
	}},
	{errFull, Problem{
		Type: TypeLimitReached, Status: http.StatusTooManyRequests, RetryAfter: time.Second, Title: "Limit is reached",
		Detail: "There was no room for this request under the limit of the resource. This request did not run the operation. Send it again later.",
	}},
	{lockcore.ErrBusy, Problem{
		Type: TypeInProgress, Status: http.StatusConflict, RetryAfter: time.Second, Title: "Operation is in progress",
		Detail: "A request with this Idempotency-Key is being processed. Send it again later, unchanged.",
	}},
	{lockcore.ErrMismatch, Problem{
		Type: TypeKeyReused, Status: http.StatusUnprocessableEntity, Title: "Idempotency-Key was used for another request",
		Detail: "This Idempotency-Key belongs to another request. Repeat that one unchanged. Use a new key only for a new operation.",
	}},
	{errUnknown, unknown},
	{errCut, Problem{
		Type: TypeInterrupted, Status: http.StatusServiceUnavailable, RetryAfter: retryUnavailable, Title: "Operation was cut short",
		Detail: "Whether it took effect is not known. Send the request again later, unchanged, with the same Idempotency-Key.",
	}},
	{lockcore.ErrAbandoned, unknown},
	{lockcore.ErrRecord, Problem{
		Type: TypeRecordUnreadable, Status: http.StatusInternalServerError, Title: "Recorded answer cannot be read",
		Detail: "This request did not run the operation. What was recorded under this Idempotency-Key cannot be read.",
	}},
	{lockcore.ErrUnavailable, unavailable},
	{lockcore.ErrClosed, unavailable},
}

var unknown = Problem{
	Type: TypeOutcomeUnknown, Status: http.StatusConflict, Title: "Outcome is unknown",
	Detail: "A request with this Idempotency-Key did not end properly and will not run again. Find out what it did before you use a new key.",
}

var internal = Problem{
	Type: TypeInternal, Status: http.StatusInternalServerError, Title: "Internal error",
	Detail: "This request did not run the operation.",
}

var unavailable = Problem{
	Type: TypeUnavailable, Status: http.StatusServiceUnavailable, RetryAfter: retryUnavailable, Title: "Temporarily unavailable",
	Detail: "This request did not run the operation; an earlier one with the same Idempotency-Key may have. " +
		"Send it again later, unchanged, with the same key if it has one.",
}
