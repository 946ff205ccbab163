package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/idempotency"
	"github.com/holdfast-go/holdfast/lockcore"
)

// holding is a key in the output of -json. docs/operate.md shows the fields; their names must not
// change.
type holding struct {
	Kind        string         `json:"kind"`
	Key         string         `json:"key"`
	KeyBytes    []byte         `json:"key_base64,omitempty"` // only if Key is not valid UTF-8
	State       lockcore.State `json:"state"`
	Result      *result        `json:"result,omitempty"` // only of a done key
	Revoked     bool           `json:"revoked"`
	PauseLeftMS int64          `json:"pause_left_ms,omitempty"`
	PauseReason string         `json:"pause_reason,omitempty"`
	Restriction *restricted    `json:"restriction,omitempty"`
	NotReleased bool           `json:"not_released"`
	Holder      *person        `json:"holder,omitempty"`
	HeldForMS   int64          `json:"held_for_ms"`
	RemainingMS int64          `json:"remaining_ms"`
	LeaseMS     int64          `json:"lease_ms"`
	Fixed       bool           `json:"fixed"`
	KeepLeftMS  int64          `json:"keep_left_ms"`
	Token       int64          `json:"token"`
	Attempt     int            `json:"attempt"`
	Queue       int            `json:"queue"`

	Weights int     `json:"weights,omitempty"` // of a shared key
	Shares  []share `json:"shares,omitempty"`  // of a shared key: those that end first, at most 100

	Parked       int         `json:"parked"`
	ParkedForMS  int64       `json:"parked_for_ms"`
	OldestParked *parkedTask `json:"oldest_parked,omitempty"`
}

type restricted struct {
	Limit  int    `json:"limit,omitempty"` // 0: the limit is not restricted
	Rate   string `json:"rate,omitempty"`  // as -rate of limit; empty: the rate is not restricted
	Burst  int    `json:"burst,omitempty"`
	LeftMS int64  `json:"left_ms"`
	Reason string `json:"reason"`
}

type share struct {
	Limit       int     `json:"limit"` // -1: none
	Weight      int     `json:"weight"`
	Holder      *person `json:"holder,omitempty"`
	HeldForMS   int64   `json:"held_for_ms"`
	RemainingMS int64   `json:"remaining_ms"`
	Cooling     bool    `json:"cooling"`
}

type person struct {
	Locker      string `json:"locker,omitempty"`
	Host        string `json:"host,omitempty"`
	PID         int    `json:"pid,omitempty"`
	Task        string `json:"task,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
}

// result is the outcome of a done key's run.
type result struct {
	Outcome string `json:"outcome"` // ok, failed, not_kept, bad_record
	Error   string `json:"error,omitempty"`
	Codec   string `json:"codec,omitempty"`
	Size    *int   `json:"size,omitempty"` // bytes of the data; not of ls
	Text    string `json:"text,omitempty"` // the data, with -result, if it is valid UTF-8
	Data    []byte `json:"data_base64,omitempty"`

	HTTP *httpResult `json:"http,omitempty"` // the data, with -result, if it is a response of httpmw
}

func (k *keyed) json() holding {
	h := holding{
		Kind: k.Kind.String(), Key: k.Key, State: k.State, Result: k.result, Revoked: k.Revoked, PauseLeftMS: k.PauseLeft.Milliseconds(), PauseReason: k.PauseReason, NotReleased: k.NotReleased, Token: k.Token, Attempt: k.Attempt, Queue: k.Queue,
		HeldForMS: k.HeldFor.Milliseconds(), RemainingMS: k.Remaining.Milliseconds(), LeaseMS: k.Lease.Milliseconds(), Fixed: k.Fixed, KeepLeftMS: k.KeepLeft.Milliseconds(),
		Parked: k.Parked, ParkedForMS: k.ParkedFor.Milliseconds(),
	}
	if k.Parked > 0 {
		oldest := parkedTaskOf(k.OldestParked)
		h.OldestParked = &oldest
	}
	if !utf8.ValidString(k.Key) {
		h.KeyBytes = []byte(k.Key)
	}
	if r := k.Restriction; r.For > 0 {
		h.Restriction = &restricted{Limit: r.Limit, Burst: r.Rate.Burst, LeftMS: r.For.Milliseconds(), Reason: r.Reason}
		if r.Rate.N > 0 {
			h.Restriction.Rate = rateText(r.Rate)
		}
	}
	h.Holder, h.Weights = personOf(k.Holder), k.Weights
	for _, s := range k.Shares {
		h.Shares = append(h.Shares, share{s.Limit.N, max(s.Limit.Weight, 1), personOf(s.Holder), s.HeldFor.Milliseconds(), s.Remaining.Milliseconds(), s.Cooling})
	}
	return h
}

func personOf(h event.Holder) *person {
	if h == (event.Holder{}) {
		return nil
	}
	return &person{h.Locker, h.Host, h.PID, h.Task, h.Traceparent}
}

// keys is the output of ls, show, revoke, clear, pause, limit and wake with -json.
type keys struct {
	AsOf     time.Time `json:"as_of"`
	Complete bool      `json:"complete"`           // false: the list of ls ends early
	Action   string    `json:"action,omitempty"`   // revoked, cleared, paused, resumed, restricted, unrestricted, sent; "" if nothing was done
	Received *int      `json:"received,omitempty"` // wake: processes that received the request
	Keys     []holding `json:"keys"`
}

func (sh *shell) printKeys(action string, all ...keyed) error {
	return sh.print(keysOf(action, all...))
}

func keysOf(action string, all ...keyed) keys {
	k := keys{AsOf: now(), Complete: true, Action: action, Keys: []holding{}}
	for i := range all {
		k.Keys = append(k.Keys, all[i].json())
	}
	return k
}

// now returns the time for as_of.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }

// print prints v as JSON.
func (sh *shell) print(v any) error {
	text, err := jsonText(v, "")
	if err == nil {
		_, err = fmt.Fprintln(sh.out, text)
	}
	return err
}

// jsonText returns v as JSON, in lines of which all but the first begin with prefix. Characters that
// a terminal does not print become escapes; package json escapes only those below a space.
func jsonText(v any, prefix string) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent(prefix, "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	var out strings.Builder
	for _, r := range strings.TrimSuffix(b.String(), "\n") {
		switch {
		case r == '\n' || r != utf8.RuneError && unicode.IsPrint(r):
			out.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, hi, lo)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String(), nil
}

// headOf reads the start of a record.
func headOf(head []byte) *result {
	ending, failure, err := idempotency.Head(head)
	switch {
	case err != nil:
		return &result{Outcome: badRecord}
	case ending == idempotency.Failed:
		return &result{Outcome: failed, Error: failure}
	case ending == idempotency.NotKept:
		return &result{Outcome: notKept}
	}
	return &result{Outcome: succeeded}
}

// resultOf decodes a whole record. If data is true, the result includes the data of the record.
func resultOf(record []byte, data bool) *result {
	r, err := idempotency.Decode(record)
	if err != nil {
		return &result{Outcome: badRecord, Error: err.Error()}
	}
	res, size := headOf(record), len(r.Data)
	if r.Ending != idempotency.Done {
		return res
	}
	res.Codec, res.Size = r.Codec, &size
	switch {
	case !data:
	case r.Codec == "http":
		res.Data, res.HTTP = r.Data, httpResultOf(r.Data)
	case utf8.Valid(r.Data):
		res.Text = string(r.Data)
	default:
		res.Data = r.Data
	}
	return res
}
