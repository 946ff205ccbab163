package httpmw

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/lockcore"
)

const typeBase = "https://github.com/holdfast-go/holdfast/problems/"

// The types of problem that this package answers with. They do not change.
const (
	TypeKeyMissing     = typeBase + "key-missing"       // 400
	TypeKeyMalformed   = typeBase + "key-malformed"     // 400
	TypeBodyUnreadable = typeBase + "body-unreadable"   // 400: the client broke off
	TypeUnauthorized   = typeBase + "unauthorized"      // 401: the scope function failed
	TypeInProgress     = typeBase + "in-progress"       // 409: a request with this key is running; come again
	TypeOutcomeUnknown = typeBase + "outcome-unknown"   // 409: an earlier run never said how it ended
	TypeNotReplayable  = typeBase + "not-replayable"    // 409: done, but the answer was not kept
	TypeBodyTooLarge   = typeBase + "body-too-large"    // 413
	TypeKeyReused      = typeBase + "key-reused"        // 422: this key belongs to another request
	TypeInternal       = typeBase + "internal"          // 500: the scope is empty, or a mistake in the program
	TypeBadRecord      = typeBase + "record-unreadable" // 500: done, but the record does not decode
	TypeUnavailable    = typeBase + "unavailable"       // 503: Redis is away, or the process shuts down; come again
)

// retryUnavailable is the Retry-After of a 503.
const retryUnavailable = 5 * time.Second

// Problem is an answer of this package, in the words of RFC 9457. The handler did not run for this request.
type Problem struct {
	Type       string        // one of the constants above
	Title      string        // the same for every problem of the type
	Status     int           // of the answer
	Detail     string        // what the client can do
	RetryAfter time.Duration // what the header says, or 0
	Err        error         // why, for logs: not for the client. It holds no raw key
}

// WriteProblem writes p as application/problem+json. It is the default of Options.Problem.
func WriteProblem(w http.ResponseWriter, _ *http.Request, p Problem) {
	body, _ := json.Marshal(map[string]any{"type": p.Type, "title": p.Title, "status": p.Status, "detail": p.Detail})
	body = append(body, '\n')
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	_, _ = w.Write(body)
}

// refuse answers r with the problem that err is.
func (m *idempotent) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := problemOf(err)
	p.Err = err
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	m.Problem(w, r, p)
}

func problemOf(err error) Problem {
	for _, row := range problems {
		if !errors.Is(err, row.err) {
			continue
		}
		p := row.Problem
		if busy := (*lockcore.BusyError)(nil); p.Type == TypeInProgress && errors.As(err, &busy) {
			p.RetryAfter = busy.RetryAfter()
		}
		return p
	}
	return internal
}

// Why a request is refused before Redis is asked, and errDropped, why a done one is after it.
var (
	errNoKey    = errors.New("httpmw: no " + HeaderKey)
	errBadKey   = errors.New("httpmw: malformed " + HeaderKey)
	errScope    = errors.New("httpmw: scope")
	errNoScope  = errors.New("httpmw: scope is empty")
	errTooLarge = errors.New("httpmw: request body is too large")
	errBody     = errors.New("httpmw: read request body")
	errDropped  = errors.New("httpmw: done, but the answer was not kept")
)

// problems is the one place where an error becomes an answer. Our own come first: what a scope function returns may wrap
// anything.
var problems = []struct {
	err error
	Problem
}{
	{errNoKey, Problem{
		Type: TypeKeyMissing, Status: http.StatusBadRequest, Title: "Idempotency-Key is missing",
		Detail: "This operation needs an Idempotency-Key header: a value that is new for each operation and the same for its repetitions.",
	}},
	{errBadKey, Problem{
		Type: TypeKeyMalformed, Status: http.StatusBadRequest, Title: "Idempotency-Key is malformed",
		Detail: "The Idempotency-Key header must appear once, with 1 to 255 printable ASCII characters, bare or as a quoted string.",
	}},
	{errScope, Problem{
		Type: TypeUnauthorized, Status: http.StatusUnauthorized, Title: "Caller is not known",
		Detail: "An Idempotency-Key belongs to an authenticated caller.",
	}},
	{errNoScope, internal},
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
	{lockcore.ErrBusy, Problem{
		Type: TypeInProgress, Status: http.StatusConflict, RetryAfter: time.Second, Title: "Operation is in progress",
		Detail: "A request with this Idempotency-Key is being processed. Send it again later, unchanged.",
	}},
	{lockcore.ErrMismatch, Problem{
		Type: TypeKeyReused, Status: http.StatusUnprocessableEntity, Title: "Idempotency-Key was used for another request",
		Detail: "Repeat the first request unchanged, or use a new Idempotency-Key.",
	}},
	{lockcore.ErrAbandoned, Problem{
		Type: TypeOutcomeUnknown, Status: http.StatusConflict, Title: "Outcome is unknown",
		Detail: "An earlier request with this Idempotency-Key did not end properly and will not run again. Find out what it did before you use a new key.",
	}},
	{lockcore.ErrRecord, Problem{
		Type: TypeBadRecord, Status: http.StatusInternalServerError, Title: "Recorded answer cannot be read",
		Detail: "The operation is done and will not run again, but its answer cannot be read.",
	}},
	{lockcore.ErrUnavailable, unavailable},
	{lockcore.ErrClosed, unavailable},
}

var internal = Problem{
	Type: TypeInternal, Status: http.StatusInternalServerError, Title: "Internal error", Detail: "The operation did not run.",
}

var unavailable = Problem{
	Type: TypeUnavailable, Status: http.StatusServiceUnavailable, RetryAfter: retryUnavailable, Title: "Temporarily unavailable",
	Detail: "The operation did not run. Send the request again later, with the same Idempotency-Key.",
}
