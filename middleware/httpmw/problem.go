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

// The types of problem in the responses of this package. They do not change. Each is the address of
// its description.
const (
	TypeKeyMissing       = typeBase + "key-missing"       // 400
	TypeKeyMalformed     = typeBase + "key-malformed"     // 400
	TypeBodyUnreadable   = typeBase + "body-unreadable"   // 400: the request ended before its body did
	TypeResourceUnnamed  = typeBase + "resource-unnamed"  // 400: Exclusive: KeyFunc returned no valid key
	TypeUnauthorized     = typeBase + "unauthorized"      // 401: Scope returned an error
	TypeInProgress       = typeBase + "in-progress"       // 409: a request with this key is running; repeat later
	TypeBusy             = typeBase + "busy"              // 409, 423: Exclusive: another request or job holds the key; repeat later
	TypeLimitReached     = typeBase + "limit-reached"     // 429: Limited, Throttled: the request does not fit under the limit or the rate; repeat later
	TypeInterrupted      = typeBase + "interrupted"       // 503: the handler ended without a response; repeat later
	TypeOutcomeUnknown   = typeBase + "outcome-unknown"   // 409: an earlier run ended without an outcome
	TypeNotReplayable    = typeBase + "not-replayable"    // 409: done, but the response was not recorded
	TypeBodyTooLarge     = typeBase + "body-too-large"    // 413
	TypeKeyReused        = typeBase + "key-reused"        // 422: this key belongs to another request
	TypeInternal         = typeBase + "internal"          // 500: the scope is empty, or a mistake in the program
	TypeRecordUnreadable = typeBase + "record-unreadable" // 500: done, but the record does not decode
	TypeUnavailable      = typeBase + "unavailable"       // 503: Redis is unavailable, the Locker is closed, or the request's ctx has ended; repeat later
)

// retryUnavailable is the Retry-After of a 503.
const retryUnavailable = 5 * time.Second

// Problem is a response of this package, in the terms of RFC 9457. The handler did not run for this
// request, or with [TypeInterrupted] returned without a response.
type Problem struct {
	// Type is one of the constants above.
	Type string
	// Title is the same for every problem of the type.
	Title string
	// Status is the status of the response.
	Status int
	// Detail tells the client what it can do.
	Detail string
	// RetryAfter is the value of the header Retry-After, or 0 if it is not set.
	RetryAfter time.Duration
	// Key is the key of the request: under Idempotent the result of the function Key, under
	// Exclusive the key of the KeyFunc. It is empty if it is not known. Do not send it to the
	// client.
	Key string
	// Err is the reason, for logs. Do not send it to the client. It contains no keys except Key and
	// those in errors of a KeyFunc, Scope or ValidKey.
	Err error
}

// WriteProblem writes p as application/problem+json. It is the default of
// IdempotentOptions.Problem, and does not use r. Before this package calls such a function, it sets
// Retry-After and Cache-Control: no-store, and removes headers that were set for another response.
// Content-Encoding stays, as in http.Error, because a middleware in front may compress the response
// (https://go.dev/issue/66343).
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) { //nolint:revive // r has a name for the documentation
	body, _ := json.Marshal(map[string]any{"type": p.Type, "title": p.Title, "status": p.Status, "detail": p.Detail})
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(p.Status)
	_, _ = w.Write(append(body, '\n'))
}

// staleHeaders are headers of another response that would be wrong for a problem. The server sets
// Content-Length.
var staleHeaders = []string{
	"Accept-Ranges", "Content-Disposition", "Content-Language", "Content-Length", "Content-Location", "Content-Range", "Etag",
	"Expires", "Last-Modified", "Location", "Trailer",
}

// refuse writes the problem of err.
func (m *idempotent) refuse(w http.ResponseWriter, r *http.Request, key string, err error) {
	p := problemOf(r.Context(), err)
	p.Key, p.Detail = key, strings.ReplaceAll(p.Detail, HeaderKey, m.Header)
	refuse(w, r, m.Problem, p)
}

// refuse writes p. The client may repeat the request, so an Idempotent around must not record p.
func refuse(w http.ResponseWriter, r *http.Request, write func(http.ResponseWriter, *http.Request, Problem), p Problem) {
	eachRun(w, func(outer *running) {
		if errors.Is(p.Err, errCut) {
			outer.unknown.Store(true)
		} else {
			outer.noEffect.Store(true)
		}
	})
	h := w.Header()
	for _, name := range staleHeaders {
		h.Del(name)
	}
	h.Set("Cache-Control", "no-store")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	write(w, r, p)
}

// problemOf returns the problem of err. ctx is the request's context.
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

// timeOver reports whether err comes from the end of the request's ctx. The client has
// disconnected, or code in front of this package has canceled the ctx, perhaps with another cause.
func timeOver(ctx context.Context, err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// Reasons to refuse a request. This package finds all of them except errDropped, errTaken and
// errFull before it sends a command to Redis.
var (
	errKeyMissing   = errors.New("httpmw: no " + HeaderKey)
	errKeyMalformed = errors.New("httpmw: malformed " + HeaderKey)
	errUnnamed      = errors.New("httpmw: no valid key")
	// errMisplaced is a mistake in the program, see ByPathValue.
	errMisplaced = errors.New("httpmw: no such path value; wrap the handler that is registered with the router, not the router")
	errScope     = errors.New("httpmw: scope")
	errNoScope   = errors.New("httpmw: scope is empty")
	errTooLarge  = errors.New("httpmw: request body is too large")
	errBody      = errors.New("httpmw: read request body")
	errBodyGone  = errors.New("httpmw: the request body was read before Idempotent; put Idempotent in front of the code that reads or parses it")
	errAround    = errors.New("httpmw: the handler wrote its response after it had returned, or not to the ResponseWriter of Idempotent, so the response was not recorded; " +
		"see https://github.com/holdfast-go/holdfast/blob/main/docs/frameworks.md#http-frameworks")
	errDropped = errors.New("httpmw: done, but the response was not recorded")
	errTaken   = errors.New("httpmw: another request has the key") // of Exclusive; it wraps the error of lockcore
	errFull    = errors.New("httpmw: the limit is reached")        // of Limited and Throttled; it wraps the error of lockcore
	errLimit   = errors.New("httpmw: limit")                       // a mistake in the program
)

// Errors of a handler that ended without a response. errUnknown is that with guard.AtMostOnce: then
// a repetition gets 409.
var (
	errCut     = errors.New("httpmw: the handler ended without a response")
	errUnknown = fmt.Errorf("%w: its outcome is unknown", errCut)
)

type problem struct {
	err error
	Problem
}

// problems maps errors to problems. The first match counts. The errors of this package come first,
// because they may wrap any error of a user's function.
var problems = []problem{
	{errKeyMissing, Problem{
		Type: TypeKeyMissing, Status: http.StatusBadRequest, Title: "Idempotency-Key is missing",
		Detail: "This operation needs an Idempotency-Key header: a value that is new for each operation and the same for its repetitions.",
	}},
	{errKeyMalformed, Problem{
		Type: TypeKeyMalformed, Status: http.StatusBadRequest, Title: "Idempotency-Key is malformed",
		Detail: "The Idempotency-Key header must appear once, with 1 to 255 printable ASCII characters, bare without a comma or as a quoted string. " +
			"This API may require more, such as a UUID.",
	}},
	{errMisplaced, internal},
	{errUnnamed, Problem{
		Type: TypeResourceUnnamed, Status: http.StatusBadRequest, Title: "Resource is not named",
		Detail: "The request does not name the resource that it needs, or names it in an invalid way.",
	}},
	{errScope, Problem{
		Type: TypeUnauthorized, Status: http.StatusUnauthorized, Title: "Caller is not known",
		Detail: "An Idempotency-Key belongs to an authenticated caller.",
	}},
	{errNoScope, internal},
	{errBodyGone, internal},
	{errTooLarge, Problem{
		Type: TypeBodyTooLarge, Status: http.StatusRequestEntityTooLarge, Title: "Request body is too large",
		Detail: "The body is larger than this operation accepts.",
	}},
	{errBody, Problem{
		Type: TypeBodyUnreadable, Status: http.StatusBadRequest, Title: "Request body cannot be read",
		Detail: "The request ended before its body did. Send it again, with the same Idempotency-Key.",
	}},
	{errDropped, Problem{
		Type: TypeNotReplayable, Status: http.StatusConflict, Title: "Response was not recorded",
		Detail: "The operation is done and will not run again, but its response was too large or was streamed. Read its result instead.",
	}},
	{errTaken, Problem{
		Type: TypeBusy, Status: http.StatusConflict, RetryAfter: time.Second, Title: "Resource is busy",
		Detail: "Another request or job is working on the same resource. This request did not run the operation. Send it again later.",
	}},
	{errFull, Problem{
		Type: TypeLimitReached, Status: http.StatusTooManyRequests, RetryAfter: time.Second, Title: "Limit is reached",
		Detail: "There was no room for this request under the limit or the rate of the resource. This request did not run the operation. Send it again later.",
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
		Type: TypeInterrupted, Status: http.StatusServiceUnavailable, RetryAfter: retryUnavailable, Title: "Operation was interrupted",
		Detail: "It is not known whether the operation took effect. Send the request again later, unchanged, with the same Idempotency-Key.",
	}},
	{lockcore.ErrAbandoned, unknown},
	{lockcore.ErrRecord, Problem{
		Type: TypeRecordUnreadable, Status: http.StatusInternalServerError, Title: "Recorded response cannot be read",
		Detail: "This request did not run the operation. The record of this Idempotency-Key cannot be read.",
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
