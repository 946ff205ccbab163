package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file decodes the replies to the commands of operators.

// DecodeInspect decodes a reply of inspect.lua for a key of this kind.
func DecodeInspect(kind backend.Kind, reply []any) (backend.Status, error) {
	var n [11]int64
	for i := 2; i < len(n); i++ {
		var err error
		if n[i], err = number(reply, i); err != nil {
			return backend.Status{}, err
		}
	}
	live, abandoned := n[7] == 1, n[8] == 1
	s := backend.Status{
		State: backend.StateFree, Holder: text(reply, 1), HeldFor: micro(n[2]), Remaining: micro(n[3]),
		Token: n[4], Attempt: count(reply, 5), Queue: count(reply, 6), Revoked: n[9] == 1, Locker: text(reply, 11), PauseLeft: span(reply, 12), Paused: text(reply, 13),
		Waits: backend.Waits{Calls: count(reply, 16), Oldest: span(reply, 17)}, RateFull: span(reply, 18), NextTurn: span(reply, 19),
		Trigger: text(reply, 20), TriggerAge: span(reply, 21),
	}
	if left := span(reply, 14); left > 0 {
		var err error
		if s.Restriction, err = parseRestriction(text(reply, 15)); err != nil {
			return backend.Status{}, err
		}
		s.Restriction.For = left
	}
	if len(reply) > 23 {
		s.Parked, s.OldestParked, s.ParkedFor = count(reply, 23), text(reply, 24), span(reply, 25)
	}
	if s.Token > 0 {
		s.GrantedAt = time.UnixMicro(s.Token)
	}
	switch state := text(reply, 0); {
	case state == "d":
		s.State, s.KeepLeft = backend.StateDone, micro(n[10])
		if len(reply) > 22 && reply[22] != nil {
			s.Record = []byte(text(reply, 22))
		}
	case state == "h" && live:
		s.State, s.Lease = backend.StateHeld, span(reply, 26)
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

// parseRestriction parses a RestrictionText.
func parseRestriction(text string) (r backend.Restriction, err error) {
	var per int64
	parts := strings.SplitN(text, " ", 5)
	if _, err := fmt.Sscan(text, &r.Limit, &r.Rate.N, &per, &r.Rate.Burst); err != nil || len(parts) < 5 {
		return r, &ReplyError{"lockcore: unexpected reply: the text of a restriction has less than five parts"}
	}
	r.Rate.Per, r.Reason = micro(per), parts[4]
	return r, nil
}

// decodeShares decodes the part of a reply of inspect.lua about a shared key.
func decodeShares(s *backend.Status, reply []any) {
	s.State, s.Weights = backend.StateShared, count(reply, 26)
	for i := 27; i+4 < len(reply); i += 5 {
		h := backend.ShareHeld{Remaining: span(reply, i+1), HeldFor: span(reply, i+2), Locker: text(reply, i+3), Holder: text(reply, i+4)}
		member := text(reply, i)
		h.Cooling = len(member) > 0 && member[0] == 'c'
		h.Share = backend.ParseShare(member)
		s.Shares = append(s.Shares, h)
	}
}

// DecodeRevoke decodes a reply of revoke.lua. If more is true, all shares are revoked, and the next
// step notifies more of their holders.
func DecodeRevoke(reply []any) (revoked bool, next RevokeStep, more bool) {
	if len(reply) == 3 {
		return true, RevokeStep{reply[1], reply[2]}, true
	}
	return isSet(reply, 0), RevokeStep{}, false
}

// DecodeClear decodes a reply of clear.lua.
func DecodeClear(reply []any) (backend.ClearReply, error) {
	n, err := number(reply, 0)
	if err != nil {
		return 0, err
	}
	return clearReplyOf(n), nil
}

// DecodeForceClear decodes a reply of force_clear.lua.
func DecodeForceClear(reply []any) (backend.ForceClearReply, error) {
	n, err := number(reply, 0)
	if err != nil {
		return backend.ForceClearReply{}, err
	}
	return backend.ForceClearReply{Outcome: clearReplyOf(n), Wait: span(reply, 1)}, nil
}

func clearReplyOf(n int64) backend.ClearReply {
	switch n {
	case 0:
		return backend.ClearHeld
	case 2:
		return backend.ClearChanged
	}
	return backend.Cleared
}
