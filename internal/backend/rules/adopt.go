package rules

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules for a hold that is transferred to another process. They have the
// form of those in rules.go.

// Adopt passes a hold to a new grant, whose tokens are greater. The run continues: its number, the
// fingerprint, the interim answer and the mark of an abandoned hold stay. So if two processes have
// the same ticket, one of them adopts the hold, and the other gets VerdictLost. Adopt remembers the
// id of From, because a late duplicate of its acquire may arrive. If the new grant was released
// before a late duplicate of r arrives, the key remembers the id of the new grant. So the duplicate
// changes nothing.
func Adopt(k Key, r *backend.AdoptRequest, e Env) (Key, backend.AdoptReply) {
	k.Expire(e.Now)
	stored := k
	k.clampEnd(e.Now)
	if !k.Plain {
		stored = k
	}
	mine := k.Owner == r.ID
	switch {
	case k.State != Held || !k.live(e.Now) || k.Owner != r.From && !mine || slices.Contains(k.Ended, r.ID): //planted:rules-adopt-own-hold
		return stored, backend.AdoptReply{Verdict: backend.VerdictLost}
	case k.Revoked:
		return stored, backend.AdoptReply{Verdict: backend.VerdictRevoked}
	}
	end, lease := k.End, micros(r.Lease)
	k = stored
	k.unfold(e.Now)
	if mine { // the reply was lost
		if e.Now+lease > end {
			k.End, k.Length = e.Now+lease, lease
		}
		return k, k.adopted(r.Key.Kind)
	}
	k.Token = max(k.GreatestToken()+1, e.Now)
	k.Owner, k.Locker, k.Holder, k.End, k.Length = r.ID, e.Locker, r.Holder, e.Now+lease, lease
	k.keep(r.Retention, e.Now)
	k.remember(r.From, e.Now)
	return k, k.adopted(r.Key.Kind)
}

func (k *Key) adopted(kind backend.Kind) backend.AdoptReply {
	return backend.AdoptReply{
		Verdict: backend.VerdictKept, Token: k.Token, GrantedAt: time.UnixMicro(k.Token), Attempt: k.attempt(kind), Abandoned: k.Abandoned,
		Fingerprint: k.Fingerprint, Parked: k.ParkingLocker != "",
	}
}

// Interim stores the interim answer of a hold that was transferred to another process. An adopted
// hold remembers the id of the first grant, and has the same attempt. A later run has another
// attempt, unless the attempts were counted from 1 again, after the end of a record or a clear. All
// waiters are notified, because a waiter may end with the answer. They stay in the queue.
func Interim(k Key, r *backend.InterimRequest, e Env) (Key, bool, []Notice) {
	k.Expire(e.Now)
	stored := k
	k.clampEnd(e.Now)
	if !k.Plain {
		stored = k
	}
	if k.State != Held || !k.live(e.Now) || int(k.Attempts) != r.Attempt || k.Owner != r.ID && !slices.Contains(k.Ended, r.ID) {
		return stored, false, nil
	}
	k = stored
	k.unfold(e.Now)
	k.Record = r.Answer
	return k, true, k.turns()
}
