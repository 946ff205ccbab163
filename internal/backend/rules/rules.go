// Package rules is the specification of a backend. Each request is a pure function: it takes the
// data of a key, the request and the time, and returns the new data, the reply, and the
// notifications to send. It changes no slice of its arguments.
//
// Package memory applies the rules to keys in the memory of the process. The scripts of
// backend/redis have the same rules, and a test of package memory compares them. The scripts also
// return an error for data that they cannot read (BADFIELD), which cannot occur here. Encode turns
// the data of a key into bytes, for a backend that stores it in a row.
package rules

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// Instant is a time, and Span a duration, in µs of the backend's clock.
type (
	Instant = int64
	Span    = int64
)

const (
	minute      = Span(60_000_000)     // how long an ended id is remembered
	longest     = Span(86_400_000_000) // a day: the longest cooldown, and the longest time within which a hold can be adopted
	maxEnded    = 16                   // maximum number of ended ids that a key remembers
	maxDead     = 100                  // maximum number of dead members of a queue that one request removes
	maxNotified = 1000                 // maximum number of waiters that a completion or an interim answer notifies
	headBytes   = 512                  // bytes of a record, see backend.RecordHead
	lastOfBlock = backend.TokensPerGrant - 1
	reserveTime = Span(backend.ReserveTime / time.Microsecond)
)

// MaxPlainRecord is the maximum size in bytes of a plain record.
const MaxPlainRecord = 2048

// Env is the input of a rule besides the key and the request.
type Env struct {
	Now       Instant
	Locker    string                  // the process that sends the request
	Listeners func(locker string) int // how many subscribers a notification would reach
}

// Notice is a notification and the process that receives it.
type Notice struct {
	Locker string
	backend.Notification
}

// Acquire grants the key or a share of it to a request, or returns why the request does not get it.
func Acquire(k Key, r *backend.AcquireRequest, e Env) (Key, backend.AcquireReply, []Notice) {
	switch {
	case r.Share.Throttled():
		return throttle(k, r, e)
	case !r.Share.Alone():
		return acquireShare(k, r, e)
	}
	k, reply := acquire(k, r, e)
	return k, reply, nil
}

func acquire(k Key, r *backend.AcquireRequest, e Env) (Key, backend.AcquireReply) {
	k.Expire(e.Now)
	plain := r.First && r.Floor == 0
	if plain && k.Empty() {
		k.grant(0, r, e)
		k.Fingerprint = r.Fingerprint
		reply := k.granted(r.Key.Kind)
		k.Plain, reply.Plain = true, true
		return k, reply
	}
	if k.State != Done || !plain {
		k.unfold(e.Now)
	}
	differs := r.Fingerprint != "" && k.Fingerprint != "" && r.Fingerprint != k.Fingerprint
	if k.State == Done {
		return replay(k, r, e, differs)
	}
	k.clampEnd(e.Now)
	mine := k.Owner == r.ID
	switch {
	case k.State == Held && mine:
		return repeat(k, r, e)
	case slices.Contains(k.Ended, r.ID): //planted:rules-late-duplicate
		return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}
	case k.live(e.Now) && !(k.State == Reserved && mine), k.paused(e.Now):
		return busy(k, r, e, differs)
	}
	died := k.State == Held // the lease expired without a release
	switch takeover := died || k.Abandoned; {
	case takeover && r.AtMostOnce && r.Key.Kind == backend.KindOnce:
		if k.left(e.Now) < wholeMillis(r.Retention) { // each refusal renews the mark
			k.keep(r.Retention, e.Now)
		}
		if died {
			k.Record = nil // an interim answer may be large
		}
		if differs { // after a clear the refused payload may run
			return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch}
		}
		return k, backend.AcquireReply{
			Outcome: backend.OutcomeAbandoned, Holder: k.Holder, HeldFor: k.heldFor(e.Now), Attempt: int(k.Attempts),
		}
	case takeover && differs:
		return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch}
	}
	k.grant(k.GreatestToken(), r, e)
	if died {
		k.Abandoned, k.Revoked, k.Replaced, k.Record = true, false, false, nil
	}
	k.Fingerprint = r.Fingerprint
	if r.Queue {
		k.leaveQueue(e.Locker, r.ID)
	}
	return k, k.granted(r.Key.Kind)
}

// replay returns the record of a done key.
func replay(k Key, r *backend.AcquireRequest, e Env, differs bool) (Key, backend.AcquireReply) {
	if r.Queue {
		k.leaveQueue(e.Locker, r.ID)
	}
	if differs {
		return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch, IsDone: true}
	}
	return k, backend.AcquireReply{
		Outcome: backend.OutcomeDone, Record: k.Record, Attempt: k.attempt(r.Key.Kind), Fingerprint: k.Fingerprint,
		Parked: k.ParkingLocker != "",
	}
}

// repeat returns the same grant again, because the first reply was lost or r is a late duplicate.
// It never shortens the lease and never revives it.
func repeat(k Key, r *backend.AcquireRequest, e Env) (Key, backend.AcquireReply) {
	if !k.live(e.Now) || k.Revoked {
		return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}
	}
	k.extend(micros(r.Lease), e.Now)
	return k, k.granted(r.Key.Kind)
}

// busy returns the busy reply with the holder of the key.
func busy(k Key, r *backend.AcquireRequest, e Env, differs bool) (Key, backend.AcquireReply) {
	if k.State == Held && differs && k.live(e.Now) {
		return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch}
	}
	if r.Queue {
		k.enterQueue(r, e)
	}
	if k.Flow.Head == r.ID { //planted:rules-rate-seen-again
		k.Flow.see(r.ID, e.Now)
	}
	if !k.live(e.Now) || k.State == Cooling {
		reply := backend.AcquireReply{Outcome: backend.OutcomeBusy, Remaining: k.pausedFor(e.Now), Queue: len(k.Queue), Place: k.place(r.ID, e)}
		if k.paused(e.Now) {
			reply.Paused = k.PauseReason
		}
		return k, reply
	}
	reply := backend.AcquireReply{Outcome: backend.OutcomeBusy, Remaining: duration(k.End - e.Now), Queue: len(k.Queue)}
	if k.State == Held || k.State == Shared {
		reply.Holder, reply.HeldFor, reply.Fingerprint, reply.Locker, reply.Record = k.Holder, k.heldFor(e.Now), k.Fingerprint, k.Locker, k.Record
		reply.Shares = k.Weights()
	}
	if k.State == Shared && k.Head == r.ID {
		k.HeadSeen = e.Now
	}
	if k.State == Shared && k.Weights() > k.HeldWeights() {
		reply.Place = k.place(r.ID, e)
	}
	return k, reply
}

// place returns 1 for the first request of the queue, and 2 for any other.
func (k *Key) place(request string, e Env) int {
	if len(k.Queue) > 0 && isWaiter(e.Locker, request)(k.Queue[0]) {
		return 1
	}
	return 2
}

// pausedFor returns the time until the end of a cooldown or of a pause, the later of the two.
func (k *Key) pausedFor(now Instant) time.Duration {
	left := max(k.Paused-now, 0)
	if k.State == Cooling && k.live(now) {
		left = max(left, k.End-now)
	}
	return duration(left)
}

// Renew extends a lease. It never shortens a lease and never revives an expired one.
func Renew(k Key, r *backend.RenewRequest, e Env) (Key, backend.Verdict) {
	if r.Share.Limit > 0 {
		return renewShare(k, r, e)
	}
	k.Expire(e.Now)
	if k.State != Held || k.Owner != r.ID {
		return k, backend.VerdictLost
	}
	k.clampState(e.Now)
	switch {
	case !k.live(e.Now): //planted:rules-live-lease
		return k, backend.VerdictLost
	case k.Replaced:
		return k, backend.VerdictReplaced
	case k.Revoked:
		return k, backend.VerdictRevoked
	}
	k.keep(r.Retention, e.Now)
	if k.extend(micros(r.Lease), e.Now); r.Lease > 0 {
		k.Length = k.End - e.Now // length before the end is always the last renewal, see ForceClear
	}
	if r.Token != 0 && r.Token >= k.Token { //planted:rules-renewal-of-latest-hold
		// The key was handed off, and this is not a late copy for an earlier hold.
		k.Token, k.Holder = r.Token, r.Holder
	}
	return k, backend.VerdictKept
}

// Release ends a hold: the key becomes free, reserved, cooling or abandoned. During cooldown, the
// time until r.CoolUntil, no request gets the key, or the weight of the share. An abandoned key
// never cools. If r.Next is set, Release acquires the key again if no other process waits.
func Release(k Key, r *backend.ReleaseRequest, cooldown Span, e Env) (Key, backend.ReleaseReply, []Notice) {
	switch {
	case r.Share.Limit > 0:
		return endShare(k, ending{id: r.ID, cooldown: cooldown, repeated: r.Repeated, retention: r.Retention}, e)
	case r.Next != nil:
		return releaseAndAcquire(k, r, e)
	}
	k.Expire(e.Now)
	if k.Plain && r.Plain && !r.Repeated && !r.Abandon && cooldown == 0 {
		switch {
		case k.Owner != r.ID:
			return k, backend.ReleaseReply{}, nil
		case r.Key.Kind == backend.KindExclusive: // a once key remembers its runs
			k.forget()
			return k, backend.ReleaseReply{Released: true}, nil
		}
	}
	k.unfold(e.Now)
	if k.State != Held || k.Owner != r.ID {
		if r.Repeated {
			k.remember(r.ID, e.Now)
		}
		return k, backend.ReleaseReply{}, nil
	}
	if r.Key.Kind == backend.KindExclusive && !r.Abandon && cooldown == 0 && !r.Repeated && len(k.Ended) == 0 && k.ParkingLocker == "" &&
		len(k.Queue) == 0 && !k.paused(e.Now) && e.Now > max(r.Token, k.Token) { // later tokens are greater than these even without the data
		k.forget()
		return k, backend.ReleaseReply{Released: true}, nil
	}
	k.keep(r.Retention+duration(cooldown), e.Now)
	k.free()
	if k.Abandoned = r.Abandon; !r.Abandon {
		k.Holder, k.Fingerprint = "", ""
	}
	if r.Token != k.Token {
		k.Used = r.Token
	}
	k.noteEnd(r.ID, r.Repeated, e.Now)
	k.keepParked(e.Now) //planted:rules-parked-kept
	if cooldown > 0 && !r.Abandon {
		k.clampPause(e.Now)
		cooldown = max(cooldown, k.Paused-e.Now)
		k.State, k.End, k.Length = Cooling, e.Now+cooldown, cooldown
		k.outlive(ceilMillis(cooldown)+minute, e.Now)
		return k, backend.ReleaseReply{Released: true}, k.announce(e)
	}
	notices := k.reserve(e)
	return k, backend.ReleaseReply{Released: true, Parked: k.State == Free && k.ParkingLocker != ""}, notices
}

// releaseAndAcquire ends a hold of an exclusive key, and acquires the key again for r.Next if no
// other process waits.
func releaseAndAcquire(k Key, r *backend.ReleaseRequest, e Env) (Key, backend.ReleaseReply, []Notice) {
	k.Expire(e.Now)
	k.clampEnd(e.Now)
	k.unfold(e.Now)
	next := r.Next
	if k.State != Held || k.Owner != r.ID { // a repeat returns the grant of next, and never queues next again
		if r.Repeated {
			k.remember(r.ID, e.Now)
		}
		if k.State == Held && k.Owner == next.ID && k.live(e.Now) && !k.Revoked {
			return k, backend.ReleaseReply{Next: k.granted(backend.KindExclusive)}, nil
		}
		return k, backend.ReleaseReply{Next: backend.AcquireReply{Queue: len(k.Queue)}}, nil
	}
	late := slices.Contains(k.Ended, next.ID) // a late duplicate, and next has ended too
	k.keep(r.Retention, e.Now)
	k.Abandoned, k.Holder, k.Fingerprint, k.Used = false, "", "", r.Token
	k.noteEnd(r.ID, r.Repeated, e.Now)
	k.keepParked(e.Now)
	k.free()
	notices := k.reserve(e)
	reply := backend.ReleaseReply{Released: true}
	switch {
	case late:
		reply.Next.Outcome = backend.OutcomeEnded
	case k.State == Cooling: // the key is paused
		k, reply.Next = busy(k, next, e, false)
	case k.State == Reserved:
		if next.Queue {
			k.enterQueue(next, e)
		}
		reply.Next = backend.AcquireReply{Remaining: backend.ReserveTime, Queue: len(k.Queue)}
	default:
		k.grant(max(r.Token, k.Token), next, e) // k.token is greater if r is a late duplicate and its id was granted again
		reply.Next = k.granted(backend.KindExclusive)
	}
	return k, reply, notices
}

// Withdraw removes a request that never ran: its queue entry, its reservation or its grant. An
// abandoned key stays abandoned.
func Withdraw(k Key, r *backend.WithdrawRequest, e Env) (Key, []Notice) {
	if !r.Share.Alone() {
		k, _, notices := endShare(k, ending{key: r.Key, id: r.ID, repeated: r.Repeated, queued: true, retention: r.Retention}, e)
		return k, notices
	}
	k.Expire(e.Now)
	k.clampEnd(e.Now)
	k.unfold(e.Now)
	_, closed := k.sweep(e.Now)
	wasQueued := slices.ContainsFunc(k.Queue, isWaiter(e.Locker, r.ID))
	k.leaveQueue(e.Locker, r.ID)
	if k.Owner != r.ID || k.State != Held && k.State != Reserved {
		if r.Repeated {
			k.remember(r.ID, e.Now)
		}
		if k.State == Shared && !k.Revoked {
			notices := k.serve("", "", e) // the request may have blocked the requests behind it, and parked entries
			if wasQueued && k.offersParked(notices) {
				notices = append(notices, wakeNotice(k, r.Key))
			}
			return k, notices
		}
		if wasQueued && k.State == Cooling && k.live(e.Now) {
			return k, k.announce(e)
		}
		return k, k.passPhase(closed, e)
	}
	if !k.Abandoned {
		k.keep(r.Retention, e.Now)
	}
	k.noteEnd(r.ID, r.Repeated, e.Now)
	k.keepParked(e.Now)
	if k.State == Held {
		k.Attempts = max(k.Attempts-1, 0)
		if !k.Abandoned {
			k.Holder, k.Fingerprint = "", ""
		}
	}
	k.free()
	notices := k.reserve(e)
	if k.State == Free && k.ParkingLocker != "" { // the release reserved the key, so it did not report the entries
		notices = append(notices, wakeNotice(k, r.Key))
	}
	return k, notices
}

// Complete ends the hold of a once key and stores its record. It also succeeds after the lease
// expired, provided that no other hold has begun. It notifies the waiters, because none of them
// will run.
func Complete(k Key, r *backend.CompleteRequest, e Env) (Key, backend.ReleaseReply, []Notice) {
	k.Expire(e.Now)
	plain := k.Plain && r.Plain && !r.Repeated
	if !plain {
		k.clampEnd(e.Now)
		k.unfold(e.Now)
	}
	if k.State == Done && k.CompletedBy == r.ID {
		return k, backend.ReleaseReply{Released: true, Parked: k.ParkingLocker != ""}, nil
	}
	if k.State != Held || k.Owner != r.ID {
		if r.Repeated {
			k.remember(r.ID, e.Now)
		}
		return k, backend.ReleaseReply{}, nil
	}
	k.keep(r.Keep, e.Now)
	k.free()
	k.State, k.CompletedBy, k.Record, k.Used, k.Abandoned = Done, r.ID, r.Record, r.Token, false
	if plain { // a plain hold has neither waiters nor ended ids
		k.Plain = len(r.Record) <= MaxPlainRecord
		return k, backend.ReleaseReply{Released: true}, nil
	}
	if keep := wholeMillis(r.Keep); keep < minute && (r.Repeated || len(k.Ended) > 0) { // the data outlives the record
		k.End, k.Length = e.Now+keep, keep
	}
	k.noteEnd(r.ID, r.Repeated, e.Now)
	k.keepParked(e.Now)
	notices := k.turns()
	k.Queue, k.QueueExpires = nil, 0
	return k, backend.ReleaseReply{Released: true, Parked: k.ParkingLocker != ""}, notices
}

// turns returns a notification for each waiter.
func (k *Key) turns() []Notice {
	var notices []Notice
	for _, w := range k.Queue[:min(len(k.Queue), maxNotified)] {
		notices = append(notices, turn(w))
	}
	return notices
}
