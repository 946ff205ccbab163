package rules

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules of what operators call. They have the form of those in rules.go.

// Inspect returns the state of a key.
func Inspect(k Key, kind backend.Kind, part backend.RecordPart, e Env) (Key, backend.Status) {
	k.Expire(e.Now)
	k.Flow.load(e.Now)
	stored := k
	k.clampEnd(e.Now)
	if !k.Plain {
		stored = k
	}
	s := backend.Status{
		State: backend.StateFree, Holder: k.Holder, Token: k.lastToken(), Attempt: int(k.Attempts), Queue: len(k.Queue), Waits: k.waits(e.Now), Revoked: k.Revoked,
		Parked: len(k.Parked), ParkedFor: k.oldestParked(e.Now),
	}
	s.Trigger, s.TriggerAge = k.newestTrigger(e.Now)
	if k.paused(e.Now) {
		s.PauseLeft, s.Paused = duration(k.Paused-e.Now), k.PauseReason
	}
	if r := &k.Flow.Restriction; r.End > e.Now {
		s.Restriction = r.Restriction
		s.Restriction.For = duration(r.End - e.Now)
	}
	s.RateFull = duration(max(k.Flow.Buckets[0].Full-e.Now, 0))
	if len(k.Queue) > 0 {
		if _, rs := k.restricted(k.Queue[0].Share, e.Now); rs.any() {
			s.NextTurn = duration(max(k.Flow.due(rs)-e.Now, 0))
		}
	}
	if s.Parked > 0 {
		s.OldestParked = k.Parked[0].Text
	}
	if k.Token > 0 {
		s.HeldFor = k.heldFor(e.Now)
	}
	if k.State == Held {
		s.Locker = k.Locker
	}
	if s.Token > 0 {
		s.GrantedAt = time.UnixMicro(s.Token)
	}
	if k.live(e.Now) {
		s.Remaining = duration(k.End - e.Now)
	}
	left := max(k.left(e.Now), 0)
	switch {
	case k.State == Done:
		if k.End != 0 {
			left = max(min(left, k.End-e.Now), 0)
		}
		s.State, s.KeepLeft, s.Record = backend.StateDone, duration(left), k.recordPart(part)
	case k.State == Held && k.live(e.Now):
		s.State, s.Lease = backend.StateHeld, duration(k.Length)
	case kind == backend.KindOnce && (k.State == Held || k.Abandoned):
		s.State, s.KeepLeft = backend.StateAbandoned, duration(left)
	case k.State == Reserved && k.live(e.Now):
		s.State = backend.StateReserved
	case k.State == Cooling && k.live(e.Now):
		s.State = backend.StateCooling
	default:
		s.Died = k.State == Held || k.Abandoned
	}
	if k.State == Shared && k.live(e.Now) {
		k.inspectShares(&s, e.Now)
		s.Died = false
	}
	return stored, s
}

// Revoke marks a hold as revoked, so that its renewals fail. The key stays held until the holder
// releases it or the lease expires. id names the revocation, so that a repeat does not revoke the
// next hold. A repeat notifies the holders of revoked shares again, because a backend may notify
// many holders in several steps.
//
// With Before id is not remembered: the next hold has a greater token, and many revocations must not
// displace other ids. With Seen it is remembered only if something was revoked, because a repeat reports
// that too.
func Revoke(k Key, r *backend.RevokeRequest, id string, e Env) (_ Key, revoked bool, _ []Notice) {
	k.Expire(e.Now)
	k.clampEnd(e.Now)
	k.unfold(e.Now)
	newer := r.Seen > 0 && k.Token > r.Seen //planted:rules-revoke-seen
	if r.Before > 0 {
		if k.State != Held || !k.live(e.Now) || k.Token >= r.Before || newer { //planted:rules-revoke-older
			return k, false, nil
		}
		k.Revoked, k.Replaced = true, true
		return k, true, k.revokedHold()
	}
	if slices.Contains(k.Ended, id) {
		if k.State == Shared && k.Revoked {
			return k, true, k.revokeShares(e.Now)
		}
		return k, true, nil
	}
	is := k.live(e.Now) && !newer && (k.State == Held || k.sharesHeld(e.Now))
	if is || r.Seen == 0 {
		k.remember(id, e.Now)
	}
	if !is {
		return k, false, nil
	}
	k.Revoked, k.Replaced = true, false
	if k.State == Shared {
		return k, true, k.revokeShares(e.Now)
	}
	return k, true, k.revokedHold()
}

func (k *Key) revokedHold() []Notice {
	return []Notice{{k.Locker, backend.Notification{Event: backend.EventRevoked, Request: k.Owner}}}
}

// Clear frees a key that is not held, and forgets its record. It keeps the greatest token. id
// names the request, so that a repeat does not clear newer data.
func Clear(k Key, r *backend.ClearRequest, id string, e Env) (Key, backend.ClearReply, []Notice) {
	k.Expire(e.Now)
	k.clampEnd(e.Now)
	k.unfold(e.Now)
	if slices.Contains(k.Ended, id) {
		return k, backend.Cleared, nil
	}
	swept, closed := k.sweep(e.Now)
	notices := k.passPhase(closed, e)
	if swept && k.HeldWeights() > 0 && !k.Revoked { // no later request may find that the shares have expired
		notices = k.serve("", "", e)
	}
	same := k.lastToken() == r.Token && (k.State == Done) == r.Done
	switch {
	case r.Condition == backend.ClearIfUnreadable || r.Condition == backend.ClearIfSame && !same:
		return k, backend.ClearChanged, notices
	case k.State == Held && k.live(e.Now) || k.HeldWeights() > 0:
		return k, backend.ClearHeld, notices
	case k.Empty():
		k.remember(id, e.Now)
		return k, backend.Cleared, notices
	}
	k.keep(backend.FreeTTL, e.Now)
	if k.State == Held { // it may have used all tokens of its grant
		k.Used = k.GreatestToken()
	}
	k.Abandoned, k.Holder, k.Fingerprint, k.Attempts, k.Record, k.CompletedBy = false, "", "", 0, nil, ""
	if k.State == Reserved || closed && k.State == Cooling {
		k.outlive(ceilMillis(max(reserveTime, k.Paused-e.Now))+minute, e.Now) // as in reserve
	} else if k.closePhase(); !closed { // otherwise passPhase has done so
		notices = append(notices, k.reserve(e)...)
	}
	k.keepParked(e.Now)
	k.remember(id, e.Now)
	return k, backend.Cleared, notices
}

// ForceClear ends the lease of a holder that has died, as if it had expired. The rest of the data
// stays, so that every request finds an expired hold. The key remembers the id of the hold, because
// a late duplicate of its acquire may arrive after the takeover. id names the request, so that a
// repeat does nothing.
func ForceClear(k Key, r *backend.ForceClearRequest, id string, e Env) (Key, backend.ForceClearReply, []Notice) {
	k.Expire(e.Now)
	k.clampEnd(e.Now)
	k.unfold(e.Now)
	early := micros(r.Silent) - (k.Length - (k.End - e.Now))
	switch {
	case slices.Contains(k.Ended, id):
		return k, backend.ForceClearReply{Outcome: backend.Cleared}, nil
	case k.State != Held || k.Token != r.Token || k.Locker != r.Locker:
		return k, backend.ForceClearReply{Outcome: backend.ClearChanged}, nil
	case early > 0:
		return k, backend.ForceClearReply{Outcome: backend.ClearHeld, Wait: duration(early)}, nil
	}
	k.remember(k.Owner, e.Now)
	k.remember(id, e.Now)
	notices := []Notice{{k.Locker, backend.Notification{Event: backend.EventRevoked, Request: k.Owner}}}
	k.End = e.Now
	notices = append(notices, k.announce(e)...)
	k.End = 0 // the lease has ended, even if the clock is set back
	if k.ParkingLocker != "" && len(k.Queue) == 0 {
		notices = append(notices, wakeNotice(k, r.Key))
	}
	return k, backend.ForceClearReply{Outcome: backend.Cleared}, notices
}

// Pause lets no request for the key be granted for length, or ends that if length is 0. What is held
// stays held. Of two pauses the one that ends later counts. A free or reserved key cools until the
// end. The end of a pause also ends a cooldown that would have ended before it. id names the request,
// so that a repeat does nothing.
func Pause(k Key, of *backend.Key, length Span, reason, id string, e Env) (Key, []Notice) {
	k.Expire(e.Now)
	k.clampEnd(e.Now)
	k.unfold(e.Now)
	_, closed := k.sweep(e.Now)
	if slices.Contains(k.Ended, id) {
		return k, nil
	}
	notices := k.passPhase(closed, e)
	switch ended := k.Paused; {
	case length == 0:
		wasPaused := k.paused(e.Now)
		k.Paused, k.PauseLength, k.PauseReason = 0, 0, ""
		switch {
		case wasPaused && k.live(e.Now) && k.State == Cooling && k.End <= ended:
			k.free()
			notices = append(notices, k.reserve(e)...)
		case wasPaused && k.State == Shared && !k.Revoked:
			notices = append(notices, k.serve("", "", e)...)
		}
		if wasPaused { //planted:rules-pause-end-wakes
			notices = append(notices, k.wakeParked(of, e)...)
		}
	case e.Now+length > max(k.Paused, e.Now): //planted:rules-later-pause-counts
		k.Paused, k.PauseLength, k.PauseReason = e.Now+length, length, reason
		if k.State == Free || k.State == Reserved || k.State == Cooling && (!k.live(e.Now) || k.End < k.Paused) {
			k.State, k.Owner, k.Locker, k.End, k.Length = Cooling, "", "", k.Paused, length
			notices = append(notices, k.announce(e)...)
		}
		k.outlive(ceilMillis(length)+minute, e.Now)
	}
	k.remember(id, e.Now)
	return k, notices
}

// Restrict bounds the terms of the requests for the key, or ends that if r.For is 0. What is held stays
// held. The bucket of the restriction is full at first. id names the restriction, so that a repeat does nothing.
func Restrict(k Key, of *backend.Key, r backend.Restriction, id string, e Env) (Key, []Notice) {
	k.Expire(e.Now)
	k.clampEnd(e.Now)
	k.unfold(e.Now)
	_, closed := k.sweep(e.Now)
	if slices.Contains(k.Ended, id) {
		return k, nil
	}
	notices := k.passPhase(closed, e)
	f := &k.Flow
	f.Restriction, f.Buckets[1] = Restriction{}, Bucket{} //planted:rules-restriction-replaced
	if f.Buckets[0].Full == 0 && f.Head == "" {           // no data is left
		f.Expires = 0
	}
	if r.For > 0 {
		f.Restriction = Restriction{e.Now + micros(r.For), r}
		f.keep(ceilMillis(micros(r.For))+minute, e.Now)
	}
	if !k.Revoked {
		notices = append(notices, k.serveRated("", e)...) // requests in the queue may fit now
	}
	notices = append(notices, k.wakeParked(of, e)...) //planted:rules-restriction-wakes
	k.remember(id, e.Now)
	return k, notices
}

// wakeParked notifies the parking Locker if a parked entry may fit after the end of a pause or the
// change of a restriction. A call that has the key or waits for it wakes the entries otherwise.
func (k *Key) wakeParked(of *backend.Key, e Env) []Notice {
	room := !k.live(e.Now) || k.State == Shared && !k.Revoked
	if k.ParkingLocker == "" || !room || k.paused(e.Now) || len(k.Queue) > 0 {
		return nil
	}
	return []Notice{wakeNotice(*k, of)}
}
