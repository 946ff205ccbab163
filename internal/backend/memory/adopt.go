package memory

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules for a hold that is handed over to another process. They have the
// form of those in rules.go.

// adopt passes a hold to a new grant, whose tokens are greater. The run continues: its number, the
// fingerprint, the interim answer and the mark of an abandoned hold stay. So if two processes have
// the same ticket, one of them adopts the hold, and the other gets VerdictLost. adopt remembers the
// id of From, because a late duplicate of its acquire may arrive. If the new grant was released
// before a late duplicate of r arrives, the key remembers the id of the new grant. So the duplicate
// changes nothing.
func adopt(k key, r *backend.AdoptRequest, e env) (key, backend.AdoptReply) {
	k.expire(e.now)
	stored := k
	k.clampEnd(e.now)
	if !k.plain {
		stored = k
	}
	mine := k.owner == r.ID
	switch {
	case k.state != held || !k.live(e.now) || k.owner != r.From && !mine || slices.Contains(k.ended, r.ID): //planted:rules-adopt-own-hold
		return stored, backend.AdoptReply{Verdict: backend.VerdictLost}
	case k.revoked:
		return stored, backend.AdoptReply{Verdict: backend.VerdictRevoked}
	}
	end, lease := k.end, micros(r.Lease)
	k = stored
	k.unfold(e.now)
	if mine { // the reply was lost
		if e.now+lease > end {
			k.end, k.length = e.now+lease, lease
		}
		return k, k.adopted(r.Key.Kind)
	}
	k.token = max(k.greatestToken()+1, e.now)
	k.owner, k.locker, k.holder, k.end, k.length = r.ID, e.locker, r.Holder, e.now+lease, lease
	k.keep(r.Retention, e.now)
	k.remember(r.From, e.now)
	return k, k.adopted(r.Key.Kind)
}

func (k *key) adopted(kind backend.Kind) backend.AdoptReply {
	return backend.AdoptReply{
		Verdict: backend.VerdictKept, Token: k.token, GrantedAt: time.UnixMicro(k.token), Attempt: k.attempt(kind), Abandoned: k.abandoned,
		Fingerprint: k.fingerprint, Parked: k.waker != "",
	}
}

// interim stores the interim answer of a hold that was handed over to another process. An adopted
// hold remembers the id of the first grant, and has the same attempt. A later run has another
// attempt, unless the attempts were counted from 1 again, after the end of a record or a clear. All
// waiters are notified, because a waiter may end with the answer. They stay in the queue.
func interim(k key, r *backend.InterimRequest, e env) (key, bool, []notice) {
	k.expire(e.now)
	stored := k
	k.clampEnd(e.now)
	if !k.plain {
		stored = k
	}
	if k.state != held || !k.live(e.now) || int(k.attempts) != r.Attempt || k.owner != r.ID && !slices.Contains(k.ended, r.ID) {
		return stored, false, nil
	}
	k = stored
	k.unfold(e.now)
	k.record = r.Answer
	return k, true, k.turns()
}
