package rules

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules of rates. They have the form of those in rules.go.
//
// A rate is a bucket of size Burst, which N costs fill in Per (GCRA). The only data is the time at
// which it is full again. A call begins if the bucket has its cost, or is full. Only the request of
// the call takes the cost, at the moment at which it is granted. So the grants in any Per are at
// most N + Burst - 1, and a waiter that dies takes nothing.
//
// A restriction to a rate has a bucket of its own, and a call needs its cost in both. So the window of
// the own rate holds across the begin and the end of a restriction, and nothing of the restriction is
// left after its end.
//
// The first request of the queue is told when it is due, and the others wait behind it.

const maxAhead = Span(48 * time.Hour / time.Microsecond) // how far ahead the bucket is full at most

// Flow is what a key keeps of its rate. It has its own TTL.
type Flow struct {
	Buckets  [2]Bucket // b, of the key; y, of the restriction
	Head     string    // w: the first request of the queue, if it has a rate
	HeadSeen Instant   // w: when Head was last sent, or became the first
	Expires  Instant   // end of the TTL; 0 without data

	Restriction Restriction // z
}

// Bucket is that of a rate.
type Bucket struct {
	Full  Instant // when it is full again
	Ahead Span    // how far ahead that was when it was written
}

// rates are the rates of a request, in the order of Flow.Buckets. N is 0 in one that it does not have.
type rates [2]backend.Rate

func (rs rates) any() bool { return rs[0].N > 0 || rs[1].N > 0 }

// Restriction bounds the terms of requests until End. Its For is how long it lasts in all; 0: there is
// none.
type Restriction struct {
	End Instant
	backend.Restriction
}

// load corrects the times of the flow if the clock was set back: then a bucket is full later than it
// can be, and a restriction ends later than it is long. Every rule that reads the flow calls it first.
func (f *Flow) load(now Instant) {
	for i := range f.Buckets {
		f.Buckets[i].Full = min(f.Buckets[i].Full, now+f.Buckets[i].Ahead) //planted:rules-rate-clock
	}
	f.Restriction.End = min(f.Restriction.End, now+micros(f.Restriction.For)) //planted:rules-restriction-clock
}

// restricted returns the terms of a request for a share: with its limit, and the rates that bound it.
func (k *Key) restricted(s backend.Share, now Instant) (backend.Share, rates) {
	r, rs := &k.Flow.Restriction, rates{s.Rate}
	if r.End <= now || s.Alone() { //planted:rules-restriction-ends
		return s, rs
	}
	s.Limit = r.LimitOf(s)
	if r.Rate.N > 0 {
		rs[1] = r.Rate //planted:rules-restricted-rate
		rs[1].Cost = max(s.Rate.Cost, 1)
	}
	return s, rs
}

// interval returns the time in which a cost of 1 returns to the bucket, in µs. It is a float64, as
// all numbers of the scripts are. Only spans are calculated with it, because a time in µs has no
// place for a fraction there. The conversions in this file keep the compiler from fusing two
// operations, which would round differently.
func interval(r backend.Rate) float64 { return float64(micros(r.Per)) / float64(r.N) }

// dueOf returns the time from which on a bucket that is full at the time full allows a call.
func dueOf(full Instant, r backend.Rate) Instant {
	return full - Span(math.Floor(float64(r.Burst-min(r.Cost, r.Burst))*interval(r)))
}

// refill returns the time in which a cost returns to the bucket.
func refill(cost int, r backend.Rate) Span { return Span(math.Ceil(float64(cost) * interval(r))) } //planted:rules-rate-rounded

// due returns the time from which on all rates of a request allow a call.
func (f *Flow) due(rs rates) (due Instant) {
	for i, r := range rs {
		if r.N > 0 {
			due = max(due, dueOf(f.Buckets[i].Full, r))
		}
	}
	return due
}

// spend takes the cost of a number of calls from the buckets of all rates. It returns the cost that
// calls may have now, and the time until they may have 1 more.
func (f *Flow) spend(rs rates, calls int, now Instant) (rest int, reset time.Duration) {
	rest = math.MaxInt
	for i, r := range rs {
		if r.N == 0 {
			continue
		}
		b, per := &f.Buckets[i], interval(r)
		b.Full = min(max(b.Full, now)+refill(r.Cost*calls, r), now+maxAhead) //planted:rules-rate-spent
		b.Ahead = b.Full - now
		f.keep(ceilMillis(b.Ahead)+1000, now)
		left := max(int(math.Floor(float64(r.Burst)-float64(b.Ahead)/per)), 0)
		more := duration(max(Span(math.Ceil(float64(b.Ahead)-float64(float64(r.Burst-left-1)*per))), 0))
		if left < rest || left == rest && more > reset {
			rest, reset = left, more
		}
	}
	return rest, reset
}

// keep extends the TTL to at least ttl.
func (f *Flow) keep(ttl Span, now Instant) {
	if left := (f.Expires - now) / 1000 * 1000; f.Expires == 0 || left < ttl {
		f.Expires = now + ttl
	}
}

// see notes that the first request of the queue, which has a rate, was sent or has become the first.
func (f *Flow) see(request string, now Instant) {
	f.Head, f.HeadSeen = request, now
	f.keep(minute, now)
}

// throttle admits a request of Throttled, or returns why it does not.
func throttle(k Key, r *backend.AcquireRequest, e Env) (Key, backend.AcquireReply, []Notice) {
	k.Expire(e.Now)
	k.unfold(e.Now)
	k.clampEnd(e.Now)
	_, closed := k.sweep(e.Now)
	k.Flow.load(e.Now)
	notices := k.passPhase(closed, e)
	if k.ended(r.ID) {
		return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}, notices
	}
	taken := k.live(e.Now) && k.State != Shared || k.paused(e.Now)
	if !taken {
		notices = append(notices, k.serveRated(r.ID, e)...)
		taken = k.live(e.Now) && k.State != Shared || k.behind(r, e) //planted:rules-rate-in-turn
	}
	_, rs := k.restricted(r.Share, e.Now)
	if taken || k.Flow.due(rs) > e.Now {
		k, reply := busyRated(k, r, e)
		return k, reply, notices
	}
	if k.leaveQueue(e.Locker, r.ID); len(k.Queue) > 0 {
		r = &backend.AcquireRequest{Key: r.Key, ID: r.ID, Share: r.Share, Calls: 1} // other processes wait
	}
	reply := backend.AcquireReply{Outcome: backend.OutcomeAdmitted, Parked: k.ParkingLocker != "", Calls: max(r.Calls, 1)}
	for i, rate := range rs {
		if rate.N > 0 {
			room := float64(e.Now-max(k.Flow.Buckets[i].Full, e.Now)) + float64(float64(rate.Burst-min(rate.Cost, rate.Burst))*interval(rate))
			reply.Calls = min(reply.Calls, int(math.Floor(room/float64(float64(rate.Cost)*interval(rate))))+1)
		}
	}
	reply.Rest, reply.Reset = k.Flow.spend(rs, reply.Calls, e.Now) //planted:rules-rate-batch
	return k, reply, append(notices, k.serveRated("", e)...)
}

// serveRated serves the queue before or after a request with a rate is granted. asker is that of
// serve. An expired hold, reservation or cooldown ends first: the holder and the first processes of
// the queue may be dead, and a request with a rate takes the key from none of them.
func (k *Key) serveRated(asker string, e Env) []Notice {
	if len(k.Queue) == 0 || k.live(e.Now) && k.State != Shared {
		return nil
	}
	if k.State != Shared { //planted:rules-rate-behind-expired
		if k.State == Held {
			k.Abandoned, k.Used = true, k.GreatestToken() // it may have used all its tokens
		}
		k.free()
	}
	return k.serve(asker, "", e)
}

// behind reports whether other requests are in the queue before r.
func (k *Key) behind(r *backend.AcquireRequest, e Env) bool {
	return len(k.Queue) > 0 && !isWaiter(e.Locker, r.ID)(k.Queue[0])
}

// busyRated returns the busy reply to a request with a rate. Its turn is after those of the requests
// before it, which it counts one after the other.
func busyRated(k Key, r *backend.AcquireRequest, e Env) (Key, backend.AcquireReply) {
	share, rs := k.restricted(r.Share, e.Now)
	if k.paused(e.Now) || k.live(e.Now) && (k.State != Shared || k.Revoked && share.Limit > 0) || k.State == Shared && share.Limit > 0 && !k.fits(share) {
		k, reply, _ := busyShare(k, r, e, nil)
		return k, reply
	}
	if r.Queue {
		k.enterQueue(r, e)
	}
	reply := backend.AcquireReply{Outcome: backend.OutcomeBusy, Exact: true, Queue: len(k.Queue), Place: 2}
	if len(k.Queue) > 0 && isWaiter(e.Locker, r.ID)(k.Queue[0]) {
		reply.Place = 1
	}
	if reply.Place == 1 || k.Flow.Head == r.ID { // at the same µs a later request may come before it
		k.Flow.see(r.ID, e.Now)
	}
	f, turn := k.Flow, e.Now
	for _, w := range k.Queue[:min(len(k.Queue), maxCounted)] {
		if isWaiter(e.Locker, r.ID)(w) {
			break
		}
		_, before := k.restricted(w.Share, e.Now)
		turn = max(turn, f.due(before))
		for i, other := range before {
			if other.N > 0 { //planted:rules-rate-costs-before
				f.Buckets[i].Full = max(f.Buckets[i].Full, turn) + refill(other.Cost, other)
			}
		}
	}
	reply.Remaining = duration(max(turn, f.due(rs)) - e.Now)
	return k, reply
}

const maxCounted = 100 // requests of the queue whose costs a busy reply counts

// serveHead tells the first request of the queue, which has a rate, when it is due. It removes that
// request and returns true if its process cannot be notified or is silent. asker and freed are those
// of serve. The request is told once when it becomes the first, when a share ends, and again by each
// other request while it is overdue, because a message can get lost.
func (k *Key) serveHead(first Waiter, asker, freed string, e Env) (notices []Notice, gone bool) {
	if asker == first.Request {
		k.Flow.see(asker, e.Now)
		return nil, false
	}
	isNew := k.Flow.Head != first.Request
	if isNew || k.Flow.HeadSeen > e.Now { // in the last case the clock was set back
		k.Flow.see(first.Request, e.Now)
	}
	if e.Now-k.Flow.HeadSeen > headSilent {
		k.leaveQueue(first.Locker, first.Request)
		return nil, true
	}
	share, rs := k.restricted(first.Share, e.Now)
	due := k.Flow.due(rs) //planted:rules-rate-told
	if share.Limit > 0 && !k.fits(share) || due > e.Now && !isNew && freed == "" {
		return nil, false
	}
	if e.Listeners(first.Locker) == 0 { //planted:rules-rate-dead-head
		k.leaveQueue(first.Locker, first.Request)
		return nil, true
	}
	return []Notice{coolingUntil(first, max(due, e.Now), e.Now)}, false
}

// Spend takes the cost of a rate without waiting.
func Spend(k Key, r backend.Rate, e Env) Key {
	k.Expire(e.Now)
	k.Flow.load(e.Now)
	_, rs := k.restricted(backend.Share{Rate: r}, e.Now)
	k.Flow.spend(rs, 1, e.Now)
	return k
}
