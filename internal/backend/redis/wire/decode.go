package wire

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file decodes the replies to the commands that a process sends for its calls. The header of
// each script has the form of its replies.

// The first element of a reply of acquire.lua.
const (
	statusBusy = iota
	statusGranted
	statusDone
	statusMismatch
	statusAbandoned
	statusEnded
	statusAdmitted
)

// leastToken is the least possible token of a plain hold, a time in the year 1973.
const leastToken = 1e14

// DecodeAcquire decodes a reply of acquire.lua, acquire_share.lua or throttle.lua. After an error the request may
// still have the key.
func DecodeAcquire(r *backend.AcquireRequest, reply []any) (a backend.AcquireReply, err error) {
	switch stored := text(reply, 0); {
	case strings.HasPrefix(stored, "d"):
		err = decodePlainRecord(&a, r, stored)
		return a, err
	case stored != "":
		token, err := strconv.ParseInt(stored, 10, 64)
		if err == nil && len(reply) == 1 && token >= leastToken && token < 1<<53 {
			a.Outcome, a.Plain, a.Token, a.GrantedAt, a.Attempt = backend.OutcomeGranted, true, token, time.UnixMicro(token), 1
			return a, nil
		}
	}
	status, err := number(reply, 0)
	switch {
	case err != nil:
	case status == statusGranted:
		a.Outcome = backend.OutcomeGranted
		a.Token, err = token(reply, 1)
		a.GrantedAt = time.UnixMicro(a.Token) // grant.lua makes the token from the server's time
		a.Attempt, a.Abandoned, a.Parked = count(reply, 2), isSet(reply, 3), isSet(reply, 4)
		if r.Share.Limit > 0 && err == nil {
			var at int64
			at, err = number(reply, 6)
			a.Phase, a.GrantedAt, a.Rest, a.Reset = text(reply, 5), time.UnixMicro(at), count(reply, 7), span(reply, 8)
		}
	case status == statusDone:
		a.Outcome, a.Record, a.Attempt, a.Fingerprint = backend.OutcomeDone, []byte(text(reply, 1)), count(reply, 2), text(reply, 3)
		a.Parked = isSet(reply, 4)
	case status == statusMismatch:
		a.Outcome, a.IsDone = backend.OutcomeMismatch, isSet(reply, 1)
	case status == statusAbandoned:
		a.Outcome, a.Holder, a.HeldFor, a.Attempt = backend.OutcomeAbandoned, text(reply, 1), span(reply, 2), count(reply, 3)
	case status == statusEnded:
		a.Outcome = backend.OutcomeEnded
	case status == statusAdmitted:
		a.Outcome, a.Calls, a.Rest, a.Reset, a.Parked = backend.OutcomeAdmitted, count(reply, 1), count(reply, 2), span(reply, 3), isSet(reply, 4)
	default:
		var left int64
		left, err = number(reply, 1)
		a.Outcome, a.Remaining, a.HeldFor = backend.OutcomeBusy, micro(left), span(reply, 2)
		a.Holder, a.Queue, a.Fingerprint, a.Locker = text(reply, 3), count(reply, 4), text(reply, 5), text(reply, 6)
		if answer := text(reply, 7); answer != "" {
			a.Record = []byte(answer)
		}
		if len(reply) > 8 {
			a.Shares = count(reply, 8)
			a.Place, a.Exact, a.Paused = count(reply, 9), isSet(reply, 10), text(reply, 11)
		}
	}
	if err != nil {
		return backend.AcquireReply{}, err
	}
	return a, nil
}

var errNoPlainRecord = errors.New("the string is not a plain record")

func decodePlainRecord(a *backend.AcquireReply, r *backend.AcquireRequest, stored string) error {
	record, fingerprint, ok := PlainRecord(stored)
	switch {
	case !ok:
		return &backend.DataError{Stored: r.Key.Stored[0], Reply: errNoPlainRecord}
	case r.Fingerprint != "" && fingerprint != "" && fingerprint != r.Fingerprint: //planted:plain-record-of-other-payload
		a.Outcome, a.IsDone = backend.OutcomeMismatch, true
	default:
		a.Outcome, a.Record, a.Attempt, a.Fingerprint = backend.OutcomeDone, []byte(record), 1, fingerprint
	}
	return nil
}

// PlainRecord decodes a plain record, see plain.lua. ok is false for a string that no script
// writes.
func PlainRecord(stored string) (record, fingerprint string, ok bool) {
	id, rest, _ := strings.Cut(stored, " ")
	ok = len(id) == len("d")+idLength && id[0] == 'd'
	var n [4]uint64 // token, last token used, bytes of the fingerprint, bytes of the holder text
	for i := range n {
		digits, after, _ := strings.Cut(rest, " ")
		v, err := strconv.ParseUint(digits, 10, 64)
		ok = ok && err == nil && len(digits) <= 16
		n[i], rest = v, after
	}
	if !ok || n[2]+n[3] > uint64(len(rest)) {
		return "", "", false
	}
	return rest[n[2]+n[3]:], rest[:n[2]], true
}

// DecodeRenew decodes the reply of renew.lua or renew_share.lua for key i of the command. A key that
// cannot be read is neither kept nor lost, and the timer of its hold decides.
func DecodeRenew(k *backend.Key, reply []any, i int) (backend.Verdict, error) {
	switch bad := text(reply, i); bad {
	case "":
	case "x", "d":
		return 0, &backend.DataError{Stored: k.Stored[0], Field: bad}
	default:
		return 0, &backend.DataError{Stored: k.Stored[0], Reply: &ReplyError{bad}}
	}
	n, err := number(reply, i)
	return verdictOf(n), err
}

// verdictOf returns the verdict that renew.lua, renew_share.lua and adopt.lua write as a number.
func verdictOf(n int64) backend.Verdict {
	switch n {
	case 1:
		return backend.VerdictKept
	case 2:
		return backend.VerdictRevoked
	case 3:
		return backend.VerdictReplaced
	}
	return backend.VerdictLost
}

// DecodeEnd decodes a reply of release.lua, release_share.lua or complete.lua. After an error the
// effect of the script is unknown.
func DecodeEnd(reply []any) (backend.ReleaseReply, error) {
	n, err := number(reply, 0)
	if err != nil {
		return backend.ReleaseReply{}, err
	}
	return backend.ReleaseReply{Released: n != 0, Parked: isSet(reply, 1)}, nil
}

// DecodeRotate decodes a reply of rotate.lua. nextErr is the error of the reply for r.Next.
func DecodeRotate(r *backend.ReleaseRequest, reply []any) (a backend.ReleaseReply, err, nextErr error) {
	n, err := number(reply, 0)
	if err != nil {
		return a, err, nil
	}
	a.Released = n != 0
	a.Next, nextErr = DecodeAcquire(r.Next, reply[1:])
	return a, nil, nextErr
}

// DecodeAdopt decodes a reply of adopt.lua. After an error the hold may be adopted.
func DecodeAdopt(reply []any) (a backend.AdoptReply, err error) {
	n, err := number(reply, 0)
	if err != nil {
		return a, err
	}
	if a.Verdict = verdictOf(n); a.Verdict != backend.VerdictKept {
		return a, nil
	}
	a.Attempt, a.Abandoned, a.Parked, a.Fingerprint = count(reply, 2), isSet(reply, 3), isSet(reply, 4), text(reply, 5)
	a.Token, err = token(reply, 1)
	a.GrantedAt = time.UnixMicro(a.Token) // grant.lua makes the token from the server's time
	return a, err
}

// DecodeInterim decodes a reply of interim.lua.
func DecodeInterim(reply []any) (stored bool, err error) {
	n, err := number(reply, 0)
	return n == 1, err
}

// DecodePark decodes a reply of park.lua.
func DecodePark(reply []any) (backend.ParkReply, error) {
	switch n, err := number(reply, 0); {
	case err != nil:
		return backend.ParkReply{}, err
	case n == 0:
		return backend.ParkReply{}, nil
	case n == 1:
		return backend.ParkReply{Outcome: backend.ParkFull, Count: count(reply, 1), Oldest: span(reply, 2)}, nil
	}
	return backend.ParkReply{
		Outcome: backend.Parked, Before: count(reply, 1), Count: count(reply, 2), Age: span(reply, 3), Oldest: span(reply, 4),
	}, nil
}

// DecodeTrigger decodes a reply of trigger.lua to a request.
func DecodeTrigger(op backend.TriggerOp, reply []any) (t backend.TriggerReply, err error) {
	outcome, err := number(reply, 0)
	switch {
	case err != nil:
		return t, err
	case outcome == 0 && len(reply) == 1:
		return t, nil
	case outcome == 0:
		t.Number, err = number(reply, 1)
		return t, err
	case outcome == 2:
		return backend.TriggerReply{Outcome: backend.TriggerAgain, Wait: span(reply, 1)}, nil
	}
	t.Outcome = backend.TriggerNewest
	switch op {
	case backend.TriggerRead:
		if t.Succeeded, err = number(reply, 1); err == nil {
			t.Now, err = number(reply, 2)
		}
	case backend.TriggerNote:
		var n [3]int64
		for i := range n {
			if n[i], err = number(reply, i+1); err != nil {
				return backend.TriggerReply{}, err
			}
		}
		t.Number, t.First, t.Now, t.Older = n[0], n[1], n[2], count(reply, 4)
	case backend.TriggerDone, backend.TriggerDrop:
	}
	return t, err
}

// DecodeUnpark decodes a reply of unpark.lua.
func DecodeUnpark(reply []any) (backend.UnparkReply, error) {
	marked, err := number(reply, 4)
	if err != nil {
		return backend.UnparkReply{}, err
	}
	u := backend.UnparkReply{Removed: count(reply, 0), Age: span(reply, 1), Count: count(reply, 2), Oldest: span(reply, 3), Marked: marked}
	for i := 5; i < len(reply); i++ {
		u.Wake = append(u.Wake, text(reply, i))
	}
	return u, nil
}

// DecodeCallParkingLocker decodes a reply of call_parking_locker.lua.
func DecodeCallParkingLocker(reply []any) (received int, err error) {
	_, err = number(reply, 0)
	return count(reply, 0), err
}
