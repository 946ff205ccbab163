package redis

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// The first element of a reply of acquire.lua.
const (
	statusBusy = iota
	statusGranted
	statusDone
	statusMismatch
	statusAbandoned
	statusEnded
)

// The modes of acquire.lua.
var modeExclusive, modeAtLeastOnce, modeAtMostOnce = "exclusive", "least", "most"

// The arguments of commands point to these values, which never change.
var (
	no, yes     = flag(false), flag(true)
	yesDeal     = flag(true) // its address, not its value, marks a plain hold that deal.lua may acquire or release
	queueKeep   = millis(backend.QueueTTL)
	reservation = micros(backend.ReserveTime)
)

// Acquire sends acquire.lua, or acquire_share.lua for a share.
func (b *Backend) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	limit, start := min(r.Timeout, callTimeout), time.Now()
	sent := start
	if b.cleanups.blocks(r.First) {
		if err := b.cleanups.before(ctx, r.Key.Stored[0], r.First, limit); err != nil {
			return backend.AcquireReply{Sent: sent}, err
		}
		sent = time.Now()
		limit = min(r.Timeout-sent.Sub(start), callTimeout) // r.Timeout includes the wait for withdrawals
	}
	if r.Share.Limit > 0 {
		reply, repeated, err := b.conn.send(&limited{Context: ctx, end: sent.Add(limit)}, b.conn.calls, acquireShareScript, b.acquireShare(&r), sent)
		if err != nil {
			return backend.AcquireReply{Sent: sent, Repeated: repeated}, err
		}
		return decodeAcquire(&r, reply, sent, repeated)
	}
	c := b.acquireCommand(&r)
	c.ctx = limited{Context: ctx, end: sent.Add(limit)}
	reply, repeated, err := b.conn.send(&c.ctx, b.conn.calls, acquireScript, c.list[:], sent)
	if err != nil {
		return backend.AcquireReply{Sent: sent, Repeated: repeated}, err
	}
	a, err := decodeAcquire(&r, reply, sent, repeated)
	a.Received = c.ctx.received
	b.conn.reuse(c)
	return a, err
}

func (b *Backend) acquireCommand(r *backend.AcquireRequest) *command {
	c := newCommand()
	c.id, c.holder, c.fingerprint, c.lease, c.retention = r.ID, r.Holder, r.Fingerprint, micros(r.Lease), millis(r.Retention)
	c.list = [15]any{
		2: 2, 3: &r.Key.Stored[0], 4: &r.Key.Stored[1], 5: &c.id, 6: &b.o.Locker, 7: &c.lease, 8: flagRef(r.Queue), 9: &c.holder, 10: &c.retention,
		11: &c.fingerprint, 12: modeOf(r), 13: &queueKeep, 14: plainRef(r.Key, b.plain(r)),
	}
	return c
}

// leastToken is the least possible token of a plain hold, a time in the year 1973.
const leastToken = 1e14

// plain reports whether the grant may be a plain hold. No duplicate of the command may exist,
// because a plain hold remembers no ended ids. With ReplicaAcks each grant is a hash, because
// evalAcked recognizes only a grant of that form.
func (b *Backend) plain(r *backend.AcquireRequest) bool {
	return r.First && b.conn.own && b.conn.acks.N == 0
}

func modeOf(r *backend.AcquireRequest) *string {
	switch {
	case r.Key.Kind == backend.KindExclusive:
		return &modeExclusive
	case r.AtMostOnce:
		return &modeAtMostOnce
	}
	return &modeAtLeastOnce
}

// plainRef returns the flag for a plain hold. It is yesDeal for exclusive keys, because deal.lua
// handles no others.
func plainRef(key *backend.Key, plain bool) *string {
	if plain && key.Kind == backend.KindExclusive {
		return &yesDeal
	}
	return flagRef(plain)
}

func flagRef(b bool) *string {
	if b {
		return &yes
	}
	return &no
}

// decodeAcquire decodes a reply of acquire.lua. After a reply of an unknown form the request may
// still have the key, so Repeated is set.
func decodeAcquire(r *backend.AcquireRequest, reply []any, sent time.Time, repeated bool) (backend.AcquireReply, error) {
	a := backend.AcquireReply{Sent: sent, Repeated: repeated}
	switch stored := text(reply, 0); {
	case strings.HasPrefix(stored, "d"):
		err := decodePlainRecord(&a, r, stored)
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
		a.Token, err = number(reply, 1)
		if err == nil && a.Token >= 1<<53 { // from invalid data: Lua has no exact numbers above that
			err = &replyError{"lockcore: unexpected reply: the token is too large"}
		}
		a.GrantedAt = time.UnixMicro(a.Token) // grant.lua makes the token from the server's time
		a.Attempt, a.Abandoned, a.Parked = small(reply, 2), small(reply, 3) == 1, isSet(reply, 4)
		if r.Share.Limit > 0 && err == nil {
			var at int64
			at, err = number(reply, 6)
			a.Phase, a.GrantedAt = text(reply, 5), time.UnixMicro(at)
		}
	case status == statusDone:
		a.Outcome, a.Record, a.Attempt, a.Fingerprint = backend.OutcomeDone, []byte(text(reply, 1)), small(reply, 2), text(reply, 3)
		a.Parked = isSet(reply, 4)
	case status == statusMismatch:
		a.Outcome, a.IsDone = backend.OutcomeMismatch, small(reply, 1) == 1
	case status == statusAbandoned:
		a.Outcome, a.Holder, a.HeldFor, a.Attempt = backend.OutcomeAbandoned, text(reply, 1), span(reply, 2), small(reply, 3)
	case status == statusEnded:
		a.Outcome = backend.OutcomeEnded
	default:
		var left int64
		left, err = number(reply, 1)
		a.Outcome, a.Remaining, a.HeldFor = backend.OutcomeBusy, micro(left), span(reply, 2)
		a.Holder, a.Queue, a.Fingerprint, a.Locker = text(reply, 3), small(reply, 4), text(reply, 5), text(reply, 6)
		if answer := text(reply, 7); answer != "" {
			a.Record = []byte(answer)
		}
		if len(reply) > 8 {
			a.Shares = small(reply, 8)
			a.Place = small(reply, 9)
		}
	}
	if err != nil {
		return backend.AcquireReply{Sent: sent, Repeated: true}, err
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
	ok = len(id) == len("d")+26 && id[0] == 'd'
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

// small returns element i as a count, or 0 if it is not a number.
func small(reply []any, i int) int {
	n, _ := number(reply, i)
	return int(min(n, math.MaxInt32))
}

// span returns element i as a duration, or 0 if it is not a number.
func span(reply []any, i int) time.Duration {
	n, _ := number(reply, i)
	return micro(n)
}
