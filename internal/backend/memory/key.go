package memory

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the steps that several requests of rules.go share.

// grant grants the key to r. Any request may take a key that is free or has expired, because the
// first process of the queue may be dead. The token is greater than used, and not less than the
// time. So tokens also grow after the data of the key has expired.
func (k *key) grant(used int64, r *backend.AcquireRequest, e env) {
	if k.state == shared { // all shares have expired
		k.closePhase()
	}
	lease := micros(r.Lease)
	k.state, k.owner, k.locker, k.end, k.length = held, r.ID, e.locker, e.now+lease, lease
	k.holder, k.token = r.Holder, max(used+1, e.now) //planted:rules-token-floor
	if r.Key.Kind == backend.KindOnce {
		k.attempts++
	}
	k.keep(r.Retention, e.now)
}

func (k *key) granted(kind backend.Kind) backend.AcquireReply {
	return backend.AcquireReply{
		Outcome: backend.OutcomeGranted, Token: k.token, GrantedAt: time.UnixMicro(k.token), Attempt: k.attempt(kind), Abandoned: k.abandoned,
		Parked: k.waker != "",
	}
}

func (k *key) attempt(kind backend.Kind) int {
	if kind == backend.KindOnce {
		return int(k.attempts)
	}
	return 1
}

// live reports whether the key is held, reserved, cooling or shared, and that state has not ended.
func (k *key) live(now instant) bool {
	return (k.state == held || k.state == reserved || k.state == cooling || k.state == shared) && k.end > now
}

func (k *key) extend(lease span, now instant) {
	if now+lease > k.end {
		k.end, k.length = now+lease, lease
	}
}

// free ends the state of a key. A key without data then has no TTL.
func (k *key) free() {
	k.state, k.owner, k.locker, k.end, k.length, k.revoked, k.record = free, "", "", 0, 0, false, nil
	if k.empty() {
		k.expires = 0
	}
}

// unfold turns a plain hold or a plain record into an ordinary one, as the scripts do. TTLs are in
// whole milliseconds.
func (k *key) unfold(now instant) {
	if k.plain {
		k.plain, k.expires = false, now+k.left(now)+1000
	}
}

// forget removes the data of the key, but neither its queue nor its parked entries.
func (k *key) forget() {
	*k = key{queue: k.queue, queueExpires: k.queueExpires, parked: k.parked, parkedExpires: k.parkedExpires}
}

// empty reports whether the key has no data.
func (k *key) empty() bool {
	return k.state == free && k.token == 0 && k.used == 0 && len(k.ended) == 0 && k.waker == ""
}

// lastToken returns the token that Inspect shows. For a hold it is the first token. For a key that
// is not held it is the greatest token that may have been used.
func (k *key) lastToken() int64 {
	if k.state == held {
		return k.token
	}
	return k.greatestToken()
}

// greatestToken returns the greatest token that may have been used.
func (k *key) greatestToken() int64 {
	if k.state == held {
		return max(k.used, k.token+lastOfBlock)
	}
	return max(k.used, k.token)
}

func (k *key) heldFor(now instant) time.Duration { return duration(max(now-k.token, 0)) }

// recordPart returns the part of the record that Inspect shows.
func (k *key) recordPart(part backend.RecordPart) []byte {
	switch part {
	case backend.WholeRecord:
		return k.record
	case backend.RecordHead:
		return k.record[:min(len(k.record), headBytes)]
	default:
		return nil
	}
}

// expire removes data that has expired: all of it, the record alone, the queue, the parked entries,
// or the shares.
func (k *key) expire(now instant) {
	if k.expires <= now {
		k.forget()
	}
	if k.queueExpires <= now {
		k.queue, k.queueExpires = nil, 0
	}
	if k.parkedExpires <= now {
		k.parked, k.parkedExpires = nil, 0
	}
	if k.sharesExpires <= now {
		k.shares, k.sharesExpires = nil, 0
	}
	if k.state == done && k.end != 0 && k.end <= now {
		k.state, k.end, k.length, k.record, k.completedBy, k.attempts = free, 0, 0, nil, "", 0
	}
}

// clampEnd corrects an end that is later than the state can last. Such an end means that the clock
// was set back.
func (k *key) clampEnd(now instant) {
	k.end = min(k.end, now+min(k.length, longest))
}

// left returns how long the data lasts, in whole milliseconds. It is negative without data.
func (k *key) left(now instant) span {
	if k.expires == 0 {
		return -1
	}
	return (k.expires - now) / 1000 * 1000
}

// keep sets the TTL of the data.
func (k *key) keep(retention time.Duration, now instant) { k.expires = now + wholeMillis(retention) }

// outlive extends the TTL of the data to at least ttl. A record still ends at its original time.
func (k *key) outlive(ttl span, now instant) {
	left := k.left(now)
	if left >= ttl || k.empty() {
		return
	}
	k.expires = now + ttl
	if left >= 0 && k.state == done && k.end == 0 { //planted:rules-record-keeps-its-end
		k.end, k.length = now+left, left
	}
}

// remember records an id that has ended. A late duplicate of its acquire may arrive. If the id were
// not recorded, the key would be granted to a request that has ended. If the key has no other data,
// its TTL starts again.
func (k *key) remember(id string, now instant) {
	if !slices.Contains(k.ended, id) {
		if k.state == free && k.token == 0 && k.used == 0 && k.waker == "" {
			k.expires = 0
		}
		k.ended = append(slices.Clone(k.ended[max(0, len(k.ended)-maxEnded+1):]), id)
	}
	k.outlive(minute, now)
}

// noteEnd remembers id if a late duplicate of it may arrive. Otherwise it only extends the TTL for
// the ids that are remembered already, because the TTL may have become shorter.
func (k *key) noteEnd(id string, repeated bool, now instant) {
	if repeated {
		k.remember(id, now)
	} else if len(k.ended) > 0 {
		k.outlive(minute, now)
	}
}

// announce tells the first process of the queue that can be notified how soon the cooldown of the
// key ends. Like reserve, it removes the dead waiters before that process.
func (k *key) announce(e env) []notice {
	for range maxDead {
		if len(k.queue) == 0 {
			return nil
		}
		first := k.queue[0]
		if e.listeners(first.locker) > 0 { //planted:rules-cooldown-announced
			return []notice{coolingUntil(first, k.end, e.now)}
		}
		k.leaveQueue(first.locker, first.request)
	}
	return nil
}

// reserve reserves a free key for the first process of the queue that can be notified. It removes
// the dead waiters before that process, at most maxDead. If more are dead, the live waiters behind
// them get the free key with their next request. The data must outlive the queue.
func (k *key) reserve(e env) []notice {
	for range maxDead {
		if len(k.queue) == 0 {
			return nil
		}
		first := k.queue[0]
		k.leaveQueue(first.locker, first.request)
		if e.listeners(first.locker) > 0 { //planted:rules-waiter-lives
			k.state, k.owner, k.locker, k.end, k.length = reserved, first.request, first.locker, e.now+reserveTime, reserveTime
			k.outlive(ceilMillis(reserveTime)+minute, e.now)
			return []notice{turn(first)}
		}
	}
	k.outlive(minute, e.now)
	return nil
}

func turn(w waiter) notice {
	return notice{w.locker, backend.Notification{Event: backend.EventTurn, Request: w.request}}
}

func coolingUntil(w waiter, end, now instant) notice {
	return notice{w.locker, backend.Notification{Event: backend.EventCooling, Request: w.request, In: duration(end - now)}}
}

// enterQueue adds a request to the queue, once, and restarts the TTL of the queue.
func (k *key) enterQueue(request string, s backend.Share, e env) {
	k.queueExpires = e.now + micros(backend.QueueTTL)
	if !slices.ContainsFunc(k.queue, isWaiter(e.locker, request)) {
		w := waiter{e.now, e.locker, request, s}
		i, _ := slices.BinarySearchFunc(k.queue, w, byArrival)
		k.queue = slices.Insert(slices.Clone(k.queue), i, w)
	}
}

// leaveQueue removes a request from the queue. A queue without waiters has no TTL.
func (k *key) leaveQueue(locker, request string) {
	if k.queue = slices.DeleteFunc(slices.Clone(k.queue), isWaiter(locker, request)); len(k.queue) == 0 {
		k.queue, k.queueExpires = nil, 0
	}
}

func isWaiter(locker, request string) func(waiter) bool {
	return func(w waiter) bool { return w.locker == locker && w.request == request }
}

func byArrival(a, b waiter) int {
	return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.locker, b.locker), cmp.Compare(a.request, b.request))
}

func micros(d time.Duration) span    { return d.Microseconds() }
func duration(us span) time.Duration { return time.Duration(us) * time.Microsecond }

// wholeMillis returns d, rounded down to whole milliseconds.
func wholeMillis(d time.Duration) span { return d.Milliseconds() * 1000 }

// ceilMillis returns us, rounded up to whole milliseconds.
func ceilMillis(us span) span { return (us + 999) / 1000 * 1000 }
