package operator

import (
	"net/http"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The outcomes of a done key's run, in Result.Outcome.
const (
	Succeeded = "ok"
	Failed    = "failed"
	NotKept   = "not_kept"
	BadRecord = "bad_record"
)

// Holding is a key in the output of -json. docs/operate.md shows the fields; their names must not
// change.
type Holding struct {
	Kind        string         `json:"kind"`
	Key         string         `json:"key"`
	KeyBytes    []byte         `json:"key_base64,omitempty"` // only if Key is not valid UTF-8
	State       lockcore.State `json:"state"`
	Result      *Result        `json:"result,omitempty"` // only of a done key
	Revoked     bool           `json:"revoked"`
	PauseLeftMS int64          `json:"pause_left_ms,omitempty"`
	PauseReason string         `json:"pause_reason,omitempty"`
	Restriction *Restricted    `json:"restriction,omitempty"`
	RateFullMS  int64          `json:"rate_full_in_ms,omitempty"`
	NextTurnMS  int64          `json:"next_turn_in_ms,omitempty"`
	NotReleased bool           `json:"not_released"`
	Holder      *Person        `json:"holder,omitempty"`
	HeldForMS   int64          `json:"held_for_ms"`
	RemainingMS int64          `json:"remaining_ms"`
	LeaseMS     int64          `json:"lease_ms"`
	Fixed       bool           `json:"fixed"`
	Transferred bool           `json:"transferred"`
	KeepLeftMS  int64          `json:"keep_left_ms"`
	Token       int64          `json:"token"`
	Attempt     int            `json:"attempt"`
	Queue       int            `json:"queue"`

	WaitingCalls int   `json:"waiting_calls"`
	OldestWaitMS int64 `json:"oldest_wait_ms"`

	Weights int     `json:"weights,omitempty"` // of a shared key
	Shares  []Share `json:"shares,omitempty"`  // of a shared key: those that end first, at most 100

	Parked       int         `json:"parked"`
	ParkedForMS  int64       `json:"parked_for_ms"`
	OldestParked *ParkedTask `json:"oldest_parked,omitempty"`

	LatestTask  *ParkedTask `json:"latest_task,omitempty"` // of asynqmw.Latest, until a success covers it
	LatestAgeMS int64       `json:"latest_age_ms,omitempty"`
}

// Restricted is a restriction in JSON.
type Restricted struct {
	Limit  int    `json:"limit,omitempty"` // 0: the limit is not restricted
	Rate   string `json:"rate,omitempty"`  // as -rate of limit; empty: the rate is not restricted
	Burst  int    `json:"burst,omitempty"`
	LeftMS int64  `json:"left_ms"`
	Reason string `json:"reason"`
}

// Share is a share in JSON.
type Share struct {
	Limit       int     `json:"limit"` // -1: none
	Weight      int     `json:"weight"`
	Holder      *Person `json:"holder,omitempty"`
	HeldForMS   int64   `json:"held_for_ms"`
	RemainingMS int64   `json:"remaining_ms"`
	Cooling     bool    `json:"cooling"`
}

// Person is a holder in JSON.
type Person struct {
	Locker      string `json:"locker,omitempty"`
	Host        string `json:"host,omitempty"`
	PID         int    `json:"pid,omitempty"`
	Task        string `json:"task,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
}

// Result is the outcome of a done key's run.
type Result struct {
	Outcome string `json:"outcome"` // ok, failed, not_kept, bad_record
	Error   string `json:"error,omitempty"`
	Codec   string `json:"codec,omitempty"`
	Size    *int   `json:"size,omitempty"` // bytes of the data; not of ls
	Text    string `json:"text,omitempty"` // the data, with -result, if it is valid UTF-8
	Data    []byte `json:"data_base64,omitempty"`

	HTTP *HTTPResult `json:"http,omitempty"` // the data, with -result, if it is a response of httpmw: status, header, size and body
}

// HTTPResult is a recorded response of httpmw.
type HTTPResult struct {
	Status int         `json:"status"`
	Header http.Header `json:"header,omitempty"`
	Size   int         `json:"size"`           // of the body in bytes
	Body   string      `json:"body,omitempty"` // if it is text
}

// JSON returns the form of -json and of the page.
func (k *Key) JSON() Holding {
	h := Holding{
		Kind: k.Kind.String(), Key: k.Key, State: k.State, Result: k.Result, Revoked: k.Revoked, PauseLeftMS: k.PauseLeft.Milliseconds(), PauseReason: k.PauseReason, NotReleased: k.NotReleased, Token: k.Token, Attempt: k.Attempt, Queue: k.Queue,
		RateFullMS: k.RateFullIn.Milliseconds(), NextTurnMS: k.NextTurnIn.Milliseconds(), WaitingCalls: k.WaitingCalls, OldestWaitMS: k.OldestWait.Milliseconds(),
		HeldForMS: k.HeldFor.Milliseconds(), RemainingMS: k.Remaining.Milliseconds(), LeaseMS: k.Lease.Milliseconds(), Fixed: k.Fixed, Transferred: k.Transferred, KeepLeftMS: k.KeepLeft.Milliseconds(),
		Parked: k.Parked, ParkedForMS: k.ParkedFor.Milliseconds(), LatestAgeMS: k.LatestAge.Milliseconds(),
	}
	if k.Parked > 0 {
		oldest := ParkedTaskOf(k.OldestParked)
		h.OldestParked = &oldest
	}
	if k.LatestTask != "" {
		latest := ParkedTaskOf(k.LatestTask)
		h.LatestTask = &latest
	}
	if !utf8.ValidString(k.Key) {
		h.KeyBytes = []byte(k.Key)
	}
	if r := k.Restriction; r.For > 0 {
		h.Restriction = &Restricted{Limit: r.Limit, Burst: r.Rate.Burst, LeftMS: r.For.Milliseconds(), Reason: r.Reason}
		if r.Rate.N > 0 {
			h.Restriction.Rate = RateText(r.Rate)
		}
	}
	h.Holder, h.Weights = personOf(k.Holder), k.Weights
	for _, s := range k.Shares {
		h.Shares = append(h.Shares, Share{s.Limit.N, max(s.Limit.Weight, 1), personOf(s.Holder), s.HeldFor.Milliseconds(), s.Remaining.Milliseconds(), s.Cooling})
	}
	return h
}

func personOf(h event.Holder) *Person {
	if h == (event.Holder{}) {
		return nil
	}
	return &Person{h.Locker, h.Host, h.PID, h.Task, h.Traceparent}
}

// HeadOf reads the start of a record.
func HeadOf(head []byte) *Result {
	ending, failure, err := idempotency.Head(head)
	switch {
	case err != nil:
		return &Result{Outcome: BadRecord}
	case ending == idempotency.Failed:
		return &Result{Outcome: Failed, Error: failure}
	case ending == idempotency.NotKept:
		return &Result{Outcome: NotKept}
	}
	return &Result{Outcome: Succeeded}
}

// ResultOf decodes a whole record. If data is true, the result includes the data of the record.
func ResultOf(record []byte, data bool) *Result {
	r, err := idempotency.Decode(record)
	if err != nil {
		return &Result{Outcome: BadRecord, Error: err.Error()}
	}
	res, size := HeadOf(record), len(r.Data)
	if r.Ending != idempotency.Done {
		return res
	}
	res.Codec, res.Size = r.Codec, &size
	switch {
	case !data:
	case r.Codec == "http":
		res.Data = r.Data
	case utf8.Valid(r.Data):
		res.Text = string(r.Data)
	default:
		res.Data = r.Data
	}
	return res
}
