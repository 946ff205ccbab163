package redis

import (
	"context"
	"crypto/rand"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Inspect sends inspect.lua.
func (b *Backend) Inspect(ctx context.Context, key *backend.Key, record backend.RecordPart) (backend.Status, error) {
	entries, _ := parkedNames(key.Stored[0])
	reply, _, err := b.conn.insist(ctx, b.conn.calls, inspectScript, []string{key.Stored[0], key.Stored[1], entries, sharesName(key.Stored[0])}, int(record))
	if err != nil {
		return backend.Status{}, err
	}
	return decodeStatus(key.Kind, reply)
}

// decodeStatus decodes the reply of inspect.lua.
func decodeStatus(kind backend.Kind, reply []any) (backend.Status, error) {
	var n [11]int64
	for _, i := range []int{2, 3, 4, 5, 6, 7, 8, 9, 10} {
		var err error
		if n[i], err = number(reply, i); err != nil {
			return backend.Status{}, err
		}
	}
	live, abandoned := n[7] == 1, n[8] == 1
	s := backend.Status{
		State: backend.StateFree, Holder: text(reply, 1), HeldFor: micro(n[2]), Remaining: micro(n[3]),
		Token: n[4], Attempt: small(reply, 5), Queue: small(reply, 6), Revoked: n[9] == 1, Locker: text(reply, 11),
	}
	if len(reply) > 13 {
		s.Parked, s.OldestParked, s.ParkedFor = small(reply, 13), text(reply, 14), span(reply, 15)
	}
	if s.Token > 0 {
		s.GrantedAt = time.UnixMicro(s.Token)
	}
	switch state := text(reply, 0); {
	case state == "d":
		s.State, s.KeepLeft = backend.StateDone, micro(n[10])
		if len(reply) > 12 && reply[12] != nil {
			s.Record = []byte(text(reply, 12))
		}
	case state == "h" && live:
		s.State, s.Lease = backend.StateHeld, span(reply, 16)
	case kind == backend.KindOnce && (state == "h" || abandoned):
		s.State, s.KeepLeft = backend.StateAbandoned, micro(n[10])
	case state == "r" && live:
		s.State = backend.StateReserved
	case state == "c" && live:
		s.State = backend.StateCooling
	case state == "s" && live:
		decodeShares(&s, reply)
	case state == "h" || abandoned: // the key is free, but its data names the last holder for a day
		s.Died = true
	}
	return s, nil
}

// Revoke sends revoke.lua.
func (b *Backend) Revoke(ctx context.Context, key *backend.Key) error {
	id := rand.Text() // the same in each repeat, so that no repeat revokes the next hold
	for from, number := any(""), any(0); ; {
		reply, _, err := b.conn.insist(ctx, b.conn.ends, revokeScript, shareKeys(key), b.channels, id, from, number)
		if err != nil || len(reply) != 3 {
			return err
		}
		from, number = reply[1], reply[2] // all shares are revoked; notify more of their holders
	}
}

// Clear sends clear.lua.
func (b *Backend) Clear(ctx context.Context, r backend.ClearRequest) (backend.ClearReply, error) {
	seen, done := "", ""
	switch r.Condition {
	case backend.ClearAlways:
	case backend.ClearIfSame:
		seen, done = strconv.FormatInt(r.Token, 10), flag(r.Done)
	case backend.ClearIfUnreadable:
		seen = "bad"
	}
	id := rand.Text() // the same in each repeat: a repeat of a completed Clear changes nothing and returns 1, even if the key is in use again
	reply, _, err := b.conn.insist(ctx, b.conn.ends, clearScript, shareKeys(r.Key),
		millis(backend.FreeTTL), reservation, b.channels, flag(b.conn.single), seen, done, id)
	if err != nil {
		return 0, err
	}
	switch n, err := number(reply, 0); {
	case err != nil:
		return 0, err
	case n == 0:
		return backend.ClearHeld, nil
	case n == 2:
		return backend.ClearChanged, nil
	}
	return backend.Cleared, nil
}

// ForceClear sends force_clear.lua.
func (b *Backend) ForceClear(ctx context.Context, r backend.ForceClearRequest) (backend.ForceClearReply, error) {
	id := rand.Text() // the same in each repeat, so that a repeat finds its first copy, even if the key has another holder now
	reply, _, err := b.conn.insist(ctx, b.conn.ends, forceScript, r.Key.Stored[:],
		strconv.FormatInt(r.Token, 10), r.Locker, micros(r.Silent), b.channels, flag(b.conn.single), id, encodeWake(r.Key))
	if err != nil {
		return backend.ForceClearReply{}, err
	}
	switch n, err := number(reply, 0); {
	case err != nil:
		return backend.ForceClearReply{}, err
	case n == 0:
		return backend.ForceClearReply{Outcome: backend.ClearHeld, Wait: span(reply, 1)}, nil
	case n == 2:
		return backend.ForceClearReply{Outcome: backend.ClearChanged}, nil
	}
	return backend.ForceClearReply{Outcome: backend.Cleared}, nil
}
