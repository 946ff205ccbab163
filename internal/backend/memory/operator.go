package memory

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules of what operators call. They have the form of those in rules.go.

// inspect returns the state of a key.
func inspect(k key, kind backend.Kind, part backend.RecordPart, e env) (key, backend.Status) {
	k.expire(e.now)
	stored := k
	k.clampEnd(e.now)
	if !k.plain {
		stored = k
	}
	s := backend.Status{
		State: backend.StateFree, Holder: k.holder, Token: k.lastToken(), Attempt: int(k.attempts), Queue: len(k.queue), Revoked: k.revoked,
		Parked: len(k.parked), ParkedFor: k.oldestParked(e.now),
	}
	if s.Parked > 0 {
		s.OldestParked = k.parked[0].text
	}
	if k.token > 0 {
		s.HeldFor = k.heldFor(e.now)
	}
	if k.state == held {
		s.Locker = k.locker
	}
	if s.Token > 0 {
		s.GrantedAt = time.UnixMicro(s.Token)
	}
	if k.live(e.now) {
		s.Remaining = duration(k.end - e.now)
	}
	left := max(k.left(e.now), 0)
	switch {
	case k.state == done:
		if k.end != 0 {
			left = max(min(left, k.end-e.now), 0)
		}
		s.State, s.KeepLeft, s.Record = backend.StateDone, duration(left), k.recordPart(part)
	case k.state == held && k.live(e.now):
		s.State, s.Lease = backend.StateHeld, duration(k.length)
	case kind == backend.KindOnce && (k.state == held || k.abandoned):
		s.State, s.KeepLeft = backend.StateAbandoned, duration(left)
	case k.state == reserved && k.live(e.now):
		s.State = backend.StateReserved
	case k.state == cooling && k.live(e.now):
		s.State = backend.StateCooling
	default:
		s.Died = k.state == held || k.abandoned
	}
	if k.state == shared && k.live(e.now) {
		k.inspectShares(&s, e.now)
		s.Died = false
	}
	return stored, s
}

// revoke marks a hold as revoked, so that its renewals fail. The key stays held until the holder
// releases it or the lease expires. id names the revocation, so that a repeat does not revoke the
// next hold.
func revoke(k key, id string, e env) (key, []notice) {
	k.expire(e.now)
	k.clampEnd(e.now)
	k.unfold(e.now)
	if slices.Contains(k.ended, id) {
		return k, nil
	}
	k.remember(id, e.now)
	if !k.live(e.now) || k.state != held && !k.sharesHeld(e.now) {
		return k, nil
	}
	k.revoked = true
	if k.state == shared {
		return k, k.revokeShares(e.now)
	}
	return k, []notice{{k.locker, backend.Notification{Event: backend.EventRevoked, Request: k.owner}}}
}

// clearKey frees a key that is not held, and forgets its record. It keeps the greatest token. id
// names the request, so that a repeat does not clear newer data.
func clearKey(k key, r *backend.ClearRequest, id string, e env) (key, backend.ClearReply, []notice) {
	k.expire(e.now)
	k.clampEnd(e.now)
	k.unfold(e.now)
	if slices.Contains(k.ended, id) {
		return k, backend.Cleared, nil
	}
	_, closed := k.sweep(e.now)
	notices := k.passPhase(closed, e)
	same := k.lastToken() == r.Token && (k.state == done) == r.Done
	switch {
	case r.Condition == backend.ClearIfUnreadable || r.Condition == backend.ClearIfSame && !same:
		return k, backend.ClearChanged, notices
	case k.state == held && k.live(e.now) || k.heldWeights() > 0:
		return k, backend.ClearHeld, notices
	case k.empty():
		k.remember(id, e.now)
		return k, backend.Cleared, notices
	}
	k.keep(backend.FreeTTL, e.now)
	if k.state == held { // it may have used all tokens of its grant
		k.used = k.greatestToken()
	}
	k.abandoned, k.holder, k.fingerprint, k.attempts, k.record, k.completedBy = false, "", "", 0, nil, ""
	if k.state != reserved {
		k.closePhase()
		notices = k.reserve(e)
	} else {
		k.outlive(ceilMillis(reserveTime)+minute, e.now) // as in reserve
	}
	k.keepWaker(e.now)
	k.remember(id, e.now)
	return k, backend.Cleared, notices
}

// forceClear ends the lease of a holder that has died, as if it had expired. The rest of the data
// stays, so that every request finds an expired hold. The key remembers the id of the hold, because
// a late duplicate of its acquire may arrive after the takeover. id names the request, so that a
// repeat does nothing.
func forceClear(k key, r *backend.ForceClearRequest, id string, e env) (key, backend.ForceClearReply, []notice) {
	k.expire(e.now)
	k.clampEnd(e.now)
	k.unfold(e.now)
	early := micros(r.Silent) - (k.length - (k.end - e.now))
	switch {
	case slices.Contains(k.ended, id):
		return k, backend.ForceClearReply{Outcome: backend.Cleared}, nil
	case k.state != held || k.token != r.Token || k.locker != r.Locker:
		return k, backend.ForceClearReply{Outcome: backend.ClearChanged}, nil
	case early > 0:
		return k, backend.ForceClearReply{Outcome: backend.ClearHeld, Wait: duration(early)}, nil
	}
	k.remember(k.owner, e.now)
	k.remember(id, e.now)
	notices := []notice{{k.locker, backend.Notification{Event: backend.EventRevoked, Request: k.owner}}}
	k.end = e.now
	notices = append(notices, k.announce(e)...)
	k.end = 0 // the lease has ended, even if the clock is set back
	if k.waker != "" && len(k.queue) == 0 {
		notices = append(notices, wakeNotice(k, r.Key))
	}
	return k, backend.ForceClearReply{Outcome: backend.Cleared}, notices
}
