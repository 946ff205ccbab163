package memory

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file is the specification of a backend. Each request is a pure function. It takes the data
// of a key, the request and the time. It returns the new data, the reply, and the notifications to
// send. It changes no slice of its arguments. The scripts of backend/redis have the same rules; a
// test compares them. The scripts also refuse data that they cannot read (BADFIELD). Such data
// cannot occur in memory.

// instant is a time, and span a duration, in µs of the backend's clock.
type (
	instant = int64
	span    = int64
)

const (
	minute         = span(60_000_000)     // how long an ended id is remembered
	longest        = span(86_400_000_000) // a day: the longest cooldown, and the longest time within which a hold can be adopted
	maxEnded       = 16                   // maximum number of ended ids that a key remembers
	maxDead        = 100                  // maximum number of dead members of a queue that one request removes
	maxNotified    = 1000                 // maximum number of waiters that a completion or an interim answer notifies
	headBytes      = 512                  // bytes of a record, see backend.RecordHead
	maxPlainRecord = 2048                 // maximum size in bytes of a record that Redis stores in one string
	lastOfBlock    = backend.TokensPerGrant - 1
	reserveTime    = span(backend.ReserveTime / time.Microsecond)
)

// state is the state of a key. An abandoned key is free or, until the next request, held with an
// end that has passed.
type state uint8

const (
	free     state = iota
	held           // a request was granted, and the grant was not released
	reserved       // kept for the first process of the queue
	cooling        // no request gets the key for the rest of MinHold
	done           // has a record
	shared         // shares were granted, see shares.go
)

// key is the data of a key and its queue. The zero value is a key without data. The letters are the
// names of the fields in Redis.
type key struct {
	plain  bool    // the hold, or the record of the first run, is the only data; Redis stores it as one string
	state  state   // s
	owner  string  // h: the grant, the request that the key is reserved for, or the first share of the phase
	locker string  // o: the process of owner, or of the last share of the phase
	end    instant // x: of the state held, reserved, cooling or shared; of done only if the data outlives the record
	length span    // d: how long the state can last, from its start or its last renewal

	holder      string   // m: of the current or the last hold
	token       int64    // t: first token of the last hold, which may use tokens up to token+lastOfBlock
	used        int64    // f: greatest token used, if it is not token
	attempts    int64    // n: number of runs of a once key
	revoked     bool     // v: the hold is revoked
	abandoned   bool     // a: a hold was abandoned, and no run has ended since
	fingerprint string   // g
	record      []byte   // r: of a done key; of a held key, the interim answer
	completedBy string   // e: the grant that stored the record
	ended       []string // l: ids for which a late duplicate may still arrive, the oldest first
	waker       string   // p: the Locker that parked an entry most recently; if set, the key may have entries

	shares        []share // by end
	sharesExpires instant // 0 without shares
	head          string  // w: the first request of the queue that does not fit
	headSeen      instant // w: when head was last sent, or became the first

	expires      instant  // end of the TTL of all fields above; 0 without data
	queue        []waiter // by arrival
	queueExpires instant  // 0 without waiters

	parked        []parkedEntry // by their first parking
	parkedExpires instant       // 0 without entries
}

// waiter is a process in the remote queue of a key.
type waiter struct {
	since           instant
	locker, request string
	share           backend.Share
}

// env is the input of a rule besides the key and the request.
type env struct {
	now       instant
	locker    string                  // the process that sends the request
	listeners func(locker string) int // how many subscribers a notification would reach
}

// notice is a notification and the process that receives it.
type notice struct {
	locker string
	backend.Notification
}

// acquire grants the key to a request, or returns why the request does not get it.
func acquire(k key, r *backend.AcquireRequest, e env) (key, backend.AcquireReply) {
	k.expire(e.now)
	if r.First && k.empty() {
		k.grant(0, r, e)
		k.fingerprint = r.Fingerprint
		reply := k.granted(r.Key.Kind)
		k.plain, reply.Plain = true, true
		return k, reply
	}
	if k.state != done || !r.First {
		k.unfold(e.now)
	}
	differs := r.Fingerprint != "" && k.fingerprint != "" && r.Fingerprint != k.fingerprint
	if k.state == done {
		return replay(k, r, e, differs)
	}
	k.clampEnd(e.now)
	mine := k.owner == r.ID
	switch {
	case k.state == held && mine:
		return repeat(k, r, e)
	case slices.Contains(k.ended, r.ID): //planted:rules-late-duplicate
		return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}
	case k.live(e.now) && !(k.state == reserved && mine):
		return busy(k, r, e, differs)
	}
	died := k.state == held // the lease expired without a release
	switch takeover := died || k.abandoned; {
	case takeover && r.AtMostOnce && r.Key.Kind == backend.KindOnce:
		if k.left(e.now) < wholeMillis(r.Retention) { // each refusal renews the mark
			k.keep(r.Retention, e.now)
		}
		if died {
			k.record = nil // an interim answer may be large
		}
		if differs { // after a clear the refused payload may run
			return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch}
		}
		return k, backend.AcquireReply{
			Outcome: backend.OutcomeAbandoned, Holder: k.holder, HeldFor: k.heldFor(e.now), Attempt: int(k.attempts),
		}
	case takeover && differs:
		return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch}
	}
	k.grant(k.greatestToken(), r, e)
	if died {
		k.abandoned, k.revoked, k.record = true, false, nil
	}
	k.fingerprint = r.Fingerprint
	if r.Queue {
		k.leaveQueue(e.locker, r.ID)
	}
	return k, k.granted(r.Key.Kind)
}

// replay returns the record of a done key.
func replay(k key, r *backend.AcquireRequest, e env, differs bool) (key, backend.AcquireReply) {
	if r.Queue {
		k.leaveQueue(e.locker, r.ID)
	}
	if differs {
		return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch, IsDone: true}
	}
	return k, backend.AcquireReply{
		Outcome: backend.OutcomeDone, Record: k.record, Attempt: k.attempt(r.Key.Kind), Fingerprint: k.fingerprint,
		Parked: k.waker != "",
	}
}

// repeat returns the same grant again, because the first reply was lost or r is a late duplicate.
// It never shortens the lease and never revives it.
func repeat(k key, r *backend.AcquireRequest, e env) (key, backend.AcquireReply) {
	if !k.live(e.now) || k.revoked {
		return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}
	}
	k.extend(micros(r.Lease), e.now)
	return k, k.granted(r.Key.Kind)
}

// busy returns the busy reply with the holder of the key.
func busy(k key, r *backend.AcquireRequest, e env, differs bool) (key, backend.AcquireReply) {
	if k.state == held && differs {
		return k, backend.AcquireReply{Outcome: backend.OutcomeMismatch}
	}
	if r.Queue {
		k.enterQueue(r.ID, r.Share, e)
	}
	reply := backend.AcquireReply{Outcome: backend.OutcomeBusy, Remaining: duration(k.end - e.now), Queue: len(k.queue)}
	if k.state == held || k.state == shared {
		reply.Holder, reply.HeldFor, reply.Fingerprint, reply.Locker, reply.Record = k.holder, k.heldFor(e.now), k.fingerprint, k.locker, k.record
		reply.Shares = k.weights()
	}
	if k.state == shared && k.head == r.ID {
		k.headSeen = e.now
	}
	if k.state == cooling || k.state == shared && k.weights() > k.heldWeights() {
		if reply.Place = 2; len(k.queue) > 0 && isWaiter(e.locker, r.ID)(k.queue[0]) {
			reply.Place = 1
		}
	}
	return k, reply
}

// renew extends a lease. It never shortens a lease and never revives an expired one.
func renew(k key, r *backend.RenewRequest, e env) (key, backend.Verdict) {
	k.expire(e.now)
	if k.state != held || k.owner != r.ID {
		return k, backend.VerdictLost
	}
	k.clampEnd(e.now)
	switch {
	case !k.live(e.now): //planted:rules-live-lease
		return k, backend.VerdictLost
	case k.revoked:
		return k, backend.VerdictRevoked
	}
	k.keep(r.Retention, e.now)
	if k.extend(micros(r.Lease), e.now); r.Lease > 0 {
		k.length = k.end - e.now // length before the end is always the last renewal, see forceClear
	}
	if r.Token != 0 { // the key was handed off
		k.token, k.holder = r.Token, r.Holder
	}
	return k, backend.VerdictKept
}

// release ends a hold: the key becomes free, reserved, cooling or abandoned. During cooldown no
// request gets the key. An abandoned key never cools.
func release(k key, r *backend.ReleaseRequest, cooldown span, e env) (key, backend.ReleaseReply, []notice) {
	k.expire(e.now)
	if k.plain && r.Plain && !r.Repeated && !r.Abandon && cooldown == 0 {
		switch {
		case k.owner != r.ID:
			return k, backend.ReleaseReply{}, nil
		case r.Key.Kind == backend.KindExclusive: // a once key remembers its runs
			k.forget()
			return k, backend.ReleaseReply{Released: true}, nil
		}
	}
	k.unfold(e.now)
	if k.state != held || k.owner != r.ID {
		if r.Repeated {
			k.remember(r.ID, e.now)
		}
		return k, backend.ReleaseReply{}, nil
	}
	if r.Key.Kind == backend.KindExclusive && !r.Abandon && cooldown == 0 && !r.Repeated && len(k.ended) == 0 && k.waker == "" &&
		len(k.queue) == 0 && e.now > max(r.Token, k.token) { // later tokens are greater than these even without the data
		k.forget()
		return k, backend.ReleaseReply{Released: true}, nil
	}
	k.keep(r.Retention, e.now)
	k.free()
	if k.abandoned = r.Abandon; !r.Abandon {
		k.holder, k.fingerprint = "", ""
	}
	if r.Token != k.token {
		k.used = r.Token
	}
	k.noteEnd(r.ID, r.Repeated, e.now)
	k.keepWaker(e.now) //planted:rules-parked-kept
	if cooldown > 0 && !r.Abandon {
		k.state, k.end, k.length = cooling, e.now+cooldown, cooldown
		k.outlive(ceilMillis(cooldown)+minute, e.now)
		return k, backend.ReleaseReply{Released: true}, k.announce(e)
	}
	notices := k.reserve(e)
	return k, backend.ReleaseReply{Released: true, Parked: k.state == free && k.waker != ""}, notices
}

// releaseAndAcquire ends a hold of an exclusive key, and acquires the key again for r.Next if no
// other process waits.
func releaseAndAcquire(k key, r *backend.ReleaseRequest, e env) (key, backend.ReleaseReply, []notice) {
	k.expire(e.now)
	k.clampEnd(e.now)
	k.unfold(e.now)
	next := r.Next
	if k.state != held || k.owner != r.ID { // a repeat returns the grant of next, and never queues next again
		if r.Repeated {
			k.remember(r.ID, e.now)
		}
		if k.state == held && k.owner == next.ID && k.live(e.now) && !k.revoked {
			return k, backend.ReleaseReply{Next: k.granted(backend.KindExclusive)}, nil
		}
		return k, backend.ReleaseReply{Next: backend.AcquireReply{Queue: len(k.queue)}}, nil
	}
	late := slices.Contains(k.ended, next.ID) // a late duplicate, and next has ended too
	k.keep(r.Retention, e.now)
	k.abandoned, k.holder, k.fingerprint, k.used = false, "", "", r.Token
	k.noteEnd(r.ID, r.Repeated, e.now)
	k.keepWaker(e.now)
	k.free()
	notices := k.reserve(e)
	reply := backend.ReleaseReply{Released: true}
	switch {
	case late:
		reply.Next.Outcome = backend.OutcomeEnded
	case k.state == reserved:
		if next.Queue {
			k.enterQueue(next.ID, next.Share, e)
		}
		reply.Next = backend.AcquireReply{Remaining: backend.ReserveTime, Queue: len(k.queue)}
	default:
		k.grant(max(r.Token, k.token), next, e) // k.token is greater if r is a late duplicate and its id was granted again
		reply.Next = k.granted(backend.KindExclusive)
	}
	return k, reply, notices
}

// withdraw removes a request that never ran: its queue entry, its reservation or its grant. An
// abandoned key stays abandoned.
func withdraw(k key, r *backend.WithdrawRequest, e env) (key, []notice) {
	k.expire(e.now)
	k.clampEnd(e.now)
	k.unfold(e.now)
	_, closed := k.sweep(e.now)
	left := slices.ContainsFunc(k.queue, isWaiter(e.locker, r.ID))
	k.leaveQueue(e.locker, r.ID)
	if k.owner != r.ID || k.state != held && k.state != reserved {
		if r.Repeated {
			k.remember(r.ID, e.now)
		}
		if k.state == shared && !k.revoked {
			notices := k.serve("", "", e) // the request may have blocked the requests behind it, and parked entries
			if left && k.offersParked(notices) {
				notices = append(notices, wakeNotice(k, r.Key))
			}
			return k, notices
		}
		if left && k.state == cooling && k.live(e.now) {
			return k, k.announce(e)
		}
		return k, k.passPhase(closed, e)
	}
	if !k.abandoned {
		k.keep(r.Retention, e.now)
	}
	k.noteEnd(r.ID, r.Repeated, e.now)
	k.keepWaker(e.now)
	if k.state == held {
		k.attempts = max(k.attempts-1, 0)
		if !k.abandoned {
			k.holder, k.fingerprint = "", ""
		}
	}
	k.free()
	notices := k.reserve(e)
	if k.state == free && k.waker != "" { // the release reserved the key, so it did not report the entries
		notices = append(notices, wakeNotice(k, r.Key))
	}
	return k, notices
}

// complete ends the hold of a once key and stores its record. It also succeeds after the lease
// expired, provided that no other hold has begun. It notifies the waiters, because none of them
// will run.
func complete(k key, r *backend.CompleteRequest, e env) (key, backend.ReleaseReply, []notice) {
	k.expire(e.now)
	plain := k.plain && r.Plain && !r.Repeated
	if !plain {
		k.clampEnd(e.now)
		k.unfold(e.now)
	}
	if k.state == done && k.completedBy == r.ID {
		return k, backend.ReleaseReply{Released: true, Parked: k.waker != ""}, nil
	}
	if k.state != held || k.owner != r.ID {
		if r.Repeated {
			k.remember(r.ID, e.now)
		}
		return k, backend.ReleaseReply{}, nil
	}
	k.keep(r.Keep, e.now)
	k.free()
	k.state, k.completedBy, k.record, k.used, k.abandoned = done, r.ID, r.Record, r.Token, false
	if plain { // a plain hold has neither waiters nor ended ids
		k.plain = len(r.Record) <= maxPlainRecord
		return k, backend.ReleaseReply{Released: true}, nil
	}
	if keep := wholeMillis(r.Keep); keep < minute && (r.Repeated || len(k.ended) > 0) { // the data outlives the record
		k.end, k.length = e.now+keep, keep
	}
	k.noteEnd(r.ID, r.Repeated, e.now)
	k.keepWaker(e.now)
	notices := k.turns()
	k.queue, k.queueExpires = nil, 0
	return k, backend.ReleaseReply{Released: true, Parked: k.waker != ""}, notices
}

// turns returns a notification for each waiter.
func (k *key) turns() []notice {
	var notices []notice
	for _, w := range k.queue[:min(len(k.queue), maxNotified)] {
		notices = append(notices, turn(w))
	}
	return notices
}
