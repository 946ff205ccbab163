package rules

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the data of a key, and the steps that several rules share.

// State is the state of a key. An abandoned key is free or, until the next request, held with an
// end that has passed.
type State uint8

// The states of a key.
const (
	Free     State = iota
	Held           // a request was granted, and the grant was not released
	Reserved       // kept for the first process of the queue
	Cooling        // no request gets the key for the rest of MinHold
	Done           // has a record
	Shared         // shares were granted, see shares.go
)

// Key is the data of a key and its queue. The zero value is a key without data. The letters are the
// names of the fields in Redis.
type Key struct {
	Plain  bool    // the hold, or the record of the first run, is the only data; Redis stores it as one string
	State  State   // s
	Owner  string  // h: the grant, the request that the key is reserved for, or the first share of the phase
	Locker string  // o: the process of Owner, or of the last share of the phase
	End    Instant // x: of the state held, reserved, cooling or shared; of done only if the data outlives the record
	Length Span    // d: how long the state can last, from its start or its last renewal

	Holder        string   // m: of the current or the last hold
	Token         int64    // t: first token of the last hold, which may use tokens up to Token+lastOfBlock
	Used          int64    // f: greatest token used, if it is not Token
	Attempts      int64    // n: number of runs of a once key
	Revoked       bool     // v: the hold is revoked
	Replaced      bool     // v: it was revoked for a newer one
	Abandoned     bool     // a: a hold was abandoned, and no run has ended since
	Fingerprint   string   // g
	Record        []byte   // r: of a done key; of a held key, the interim answer
	CompletedBy   string   // e: the grant that stored the record
	Ended         []string // l: ids for which a late duplicate may still arrive, the oldest first
	Paused        Instant  // y: end of the pause; before it no request is granted
	PauseLength   Span     // y
	PauseReason   string   // y
	ParkingLocker string   // p: the Locker that parked an entry most recently; if set, the key may have entries

	Flow Flow // of its rate; with its own TTL

	Shares        []Share // by end
	SharesExpires Instant // 0 without shares
	Head          string  // w: the first request of the queue that does not fit
	HeadSeen      Instant // w: when Head was last sent, or became the first

	Expires      Instant  // end of the TTL of all fields above; 0 without data
	Queue        []Waiter // by arrival
	QueueExpires Instant  // 0 without waiters
	Waits        []Waits  // by the time at which they were said

	Parked        []ParkedEntry // by their first parking
	ParkedExpires Instant       // 0 without entries

	Triggers        []Trigger // by score
	Succeeded       int64     // =: the greatest number of a success
	Uncovered       int64     // <: the number of the first trigger that no success covers
	TriggersExpires Instant   // 0 without triggers
}

// Waiter is a process in the remote queue of a key.
type Waiter struct {
	Since           Instant
	Locker, Request string
	Share           backend.Share
}

// Waits is what a process has said of its calls that wait. It has its own TTL.
type Waits struct {
	Locker  string
	Calls   int
	Since   Instant // since when the oldest of them waits
	Expires Instant
}

// grant grants the key to r. Any request may take a key that is free or has expired, because the
// first process of the queue may be dead. The token is greater than used, and not less than the
// time. So tokens also grow after the data of the key has expired.
func (k *Key) grant(used int64, r *backend.AcquireRequest, e Env) {
	if k.State == Shared { // all shares have expired
		k.closePhase()
	}
	lease := micros(r.Lease)
	k.State, k.Owner, k.Locker, k.End, k.Length = Held, r.ID, e.Locker, e.Now+lease, lease
	k.Holder, k.Token = r.Holder, max(used+1, r.Floor, e.Now) //planted:rules-token-floor
	if r.Key.Kind == backend.KindOnce {
		k.Attempts++
	}
	k.keep(r.Retention, e.Now)
}

func (k *Key) granted(kind backend.Kind) backend.AcquireReply {
	return backend.AcquireReply{
		Outcome: backend.OutcomeGranted, Token: k.Token, GrantedAt: time.UnixMicro(k.Token), Attempt: k.attempt(kind), Abandoned: k.Abandoned,
		Parked: k.ParkingLocker != "",
	}
}

func (k *Key) attempt(kind backend.Kind) int {
	if kind == backend.KindOnce {
		return int(k.Attempts)
	}
	return 1
}

// live reports whether the key is held, reserved, cooling or shared, and that state has not ended.
func (k *Key) live(now Instant) bool {
	return (k.State == Held || k.State == Reserved || k.State == Cooling || k.State == Shared) && k.End > now
}

func (k *Key) extend(lease Span, now Instant) {
	if now+lease > k.End {
		k.End, k.Length = now+lease, lease
	}
}

// free ends the state of a key. A key without data then has no TTL.
func (k *Key) free() {
	k.State, k.Owner, k.Locker, k.End, k.Length, k.Record = Free, "", "", 0, 0, nil
	k.Revoked, k.Replaced = false, false
	if k.Empty() {
		k.Expires = 0
	}
}

// unfold turns a plain hold or a plain record into an ordinary one, as the scripts do. TTLs are in
// whole milliseconds.
func (k *Key) unfold(now Instant) {
	if k.Plain {
		k.Plain, k.Expires = false, now+k.left(now)+1000
	}
}

// forget removes the data of the key, but neither its rate, its queue, what processes have said of their
// calls, its parked entries nor its triggers.
func (k *Key) forget() {
	*k = Key{
		Flow: k.Flow, Queue: k.Queue, QueueExpires: k.QueueExpires, Waits: k.Waits, Parked: k.Parked, ParkedExpires: k.ParkedExpires,
		Triggers: k.Triggers, Succeeded: k.Succeeded, Uncovered: k.Uncovered, TriggersExpires: k.TriggersExpires,
	}
}

// Empty reports whether the key has no data.
func (k *Key) Empty() bool {
	return k.State == Free && k.Token == 0 && k.Used == 0 && len(k.Ended) == 0 && k.ParkingLocker == "" && k.Paused == 0
}

// Gone reports whether nothing is left of the key: neither data nor a rate, a queue, counts of waiting
// calls, parked entries or triggers.
func (k *Key) Gone() bool {
	return k.Empty() && k.Flow.Expires == 0 && len(k.Queue) == 0 && len(k.Waits) == 0 && len(k.Parked) == 0 && k.TriggersExpires == 0
}

// lastToken returns the token that Inspect shows. For a hold it is the first token. For a key that
// is not held it is the greatest token that may have been used.
func (k *Key) lastToken() int64 {
	if k.State == Held {
		return k.Token
	}
	return k.GreatestToken()
}

// GreatestToken returns the greatest token that may have been used.
func (k *Key) GreatestToken() int64 {
	if k.State == Held {
		return max(k.Used, k.Token+lastOfBlock)
	}
	return max(k.Used, k.Token)
}

func (k *Key) heldFor(now Instant) time.Duration { return duration(max(now-k.Token, 0)) }

// recordPart returns the part of the record that Inspect shows.
func (k *Key) recordPart(part backend.RecordPart) []byte {
	switch part {
	case backend.WholeRecord:
		return k.Record
	case backend.RecordHead:
		return k.Record[:min(len(k.Record), headBytes)]
	default:
		return nil
	}
}

// Expire removes data that has expired: all of it, the record alone, the queue, what processes have said
// of their calls, the parked entries, the triggers, or the shares.
func (k *Key) Expire(now Instant) {
	if k.Expires <= now {
		k.forget()
	}
	if k.Flow.Expires <= now {
		k.Flow = Flow{}
	}
	if k.QueueExpires <= now {
		k.Queue, k.QueueExpires = nil, 0
	}
	if over := func(w Waits) bool { return w.Expires <= now }; slices.ContainsFunc(k.Waits, over) {
		k.Waits = slices.DeleteFunc(slices.Clone(k.Waits), over)
	}
	if k.ParkedExpires <= now {
		k.Parked, k.ParkedExpires = nil, 0
	}
	if k.TriggersExpires <= now {
		k.Triggers, k.Succeeded, k.Uncovered, k.TriggersExpires = nil, 0, 0, 0
	}
	if k.SharesExpires <= now {
		k.Shares, k.SharesExpires = nil, 0
	}
	if k.State == Done && k.End != 0 && k.End <= now {
		k.State, k.End, k.Length, k.Record, k.CompletedBy, k.Attempts = Free, 0, 0, nil, "", 0
	}
}

// NextEnd returns the first time after now at which Expire removes something of k.
func (k *Key) NextEnd(now Instant) Instant {
	ends := []Instant{k.Expires, k.Flow.Expires, k.QueueExpires, k.ParkedExpires, k.TriggersExpires}
	for _, w := range k.Waits {
		ends = append(ends, w.Expires)
	}
	next := slices.Max(ends)
	for _, end := range ends {
		if end > now {
			next = min(next, end)
		}
	}
	if k.State == Done && k.End > now {
		next = min(next, k.End)
	}
	return next
}

// clampEnd corrects an end that is later than the state can last, and that of a pause. Such an end
// means that the clock was set back.
func (k *Key) clampEnd(now Instant) {
	k.clampState(now)
	k.clampPause(now)
}

// clampState is clampEnd without the pause, which a renewal does not read.
func (k *Key) clampState(now Instant) { k.End = min(k.End, now+min(k.Length, longest)) }

// clampPause corrects the end of a pause likewise.
func (k *Key) clampPause(now Instant) {
	k.Paused = min(k.Paused, now+k.PauseLength) //planted:rules-pause-clock
}

// paused reports whether the key is paused.
func (k *Key) paused(now Instant) bool { return k.Paused > now }

// left returns how long the data lasts, in whole milliseconds. It is negative without data.
func (k *Key) left(now Instant) Span {
	if k.Expires == 0 {
		return -1
	}
	return (k.Expires - now) / 1000 * 1000
}

// keep sets the TTL of the data.
func (k *Key) keep(retention time.Duration, now Instant) { k.Expires = now + wholeMillis(retention) }

// outlive extends the TTL of the data to at least ttl. A record still ends at its original time.
func (k *Key) outlive(ttl Span, now Instant) {
	left := k.left(now)
	if left >= ttl || k.Empty() {
		return
	}
	k.Expires = now + ttl
	if left >= 0 && k.State == Done && k.End == 0 { //planted:rules-record-keeps-its-end
		k.End, k.Length = now+left, left
	}
	if k.State == Shared {
		k.SharesExpires = now + ttl
	}
}

// remember records an id that has ended. A late duplicate of its acquire may arrive. If the id were
// not recorded, the key would be granted to a request that has ended. If the key has no other data,
// its TTL starts again.
func (k *Key) remember(id string, now Instant) {
	if !slices.Contains(k.Ended, id) {
		if k.State == Free && k.Token == 0 && k.Used == 0 && k.ParkingLocker == "" && k.Paused == 0 {
			k.Expires = 0
		}
		k.Ended = append(slices.Clone(k.Ended[max(0, len(k.Ended)-maxEnded+1):]), id)
	}
	k.outlive(minute, now)
}

// noteEnd remembers id if a late duplicate of it may arrive. Otherwise it only extends the TTL for
// the ids that are remembered already, because the TTL may have become shorter.
func (k *Key) noteEnd(id string, repeated bool, now Instant) {
	if repeated {
		k.remember(id, now)
	} else if len(k.Ended) > 0 {
		k.outlive(minute, now)
	}
}

// announce tells the first process of the queue that can be notified how soon the cooldown of the
// key ends. Like reserve, it removes the dead waiters before that process.
func (k *Key) announce(e Env) []Notice {
	for range maxDead {
		if len(k.Queue) == 0 {
			return nil
		}
		first := k.Queue[0]
		if e.Listeners(first.Locker) > 0 { //planted:rules-cooldown-announced
			return []Notice{coolingUntil(first, k.End, e.Now)}
		}
		k.leaveQueue(first.Locker, first.Request)
	}
	return nil
}

// reserve reserves a free key for the first process of the queue that can be notified. It removes
// the dead waiters before that process, at most maxDead. If more are dead, the live waiters behind
// them get the free key with their next request. The data must outlive the queue.
//
// A key that is paused cools until the end of the pause instead, and the first process is told.
func (k *Key) reserve(e Env) []Notice {
	if k.clampPause(e.Now); k.paused(e.Now) { //planted:rules-paused-not-reserved
		k.State, k.End, k.Length = Cooling, k.Paused, k.Paused-e.Now
		k.outlive(ceilMillis(k.Length)+minute, e.Now)
		return k.announce(e)
	}
	for range maxDead {
		if len(k.Queue) == 0 {
			return nil
		}
		first := k.Queue[0]
		lives := e.Listeners(first.Locker) > 0
		if lives && (first.Share.Rate.N > 0 || first.Share.Limit > 0 && k.Flow.Restriction.For > 0) {
			// Its own request is granted when its rate or the restriction allows it, so the key stays free.
			return []Notice{turn(first)}
		}
		k.leaveQueue(first.Locker, first.Request)
		if lives { //planted:rules-waiter-lives
			k.State, k.Owner, k.Locker, k.End, k.Length = Reserved, first.Request, first.Locker, e.Now+reserveTime, reserveTime
			k.outlive(ceilMillis(reserveTime)+minute, e.Now)
			return []Notice{turn(first)}
		}
	}
	k.outlive(minute, e.Now)
	return nil
}

func turn(w Waiter) Notice {
	return Notice{w.Locker, backend.Notification{Event: backend.EventTurn, Request: w.Request}}
}

func coolingUntil(w Waiter, end, now Instant) Notice {
	return Notice{w.Locker, backend.Notification{Event: backend.EventCooling, Request: w.Request, In: duration(end - now)}}
}

// enterQueue adds a request to the queue, once, and restarts the TTL of the queue.
func (k *Key) enterQueue(r *backend.AcquireRequest, e Env) {
	k.QueueExpires = e.Now + micros(backend.QueueTTL)
	if !slices.ContainsFunc(k.Queue, isWaiter(e.Locker, r.ID)) {
		w := Waiter{e.Now, e.Locker, r.ID, r.Share}
		i, _ := slices.BinarySearchFunc(k.Queue, w, byArrival)
		k.Queue = slices.Insert(slices.Clone(k.Queue), i, w)
	}
	if r.Waits.Calls > 0 {
		k.Waits = slices.DeleteFunc(slices.Clone(k.Waits), func(w Waits) bool { return w.Locker == e.Locker })
		k.Waits = append(k.Waits, Waits{e.Locker, r.Waits.Calls, e.Now - micros(r.Waits.Oldest), e.Now + micros(backend.WaitsTTL)})
	}
}

// waits returns how many calls wait in the processes of the queue, and for how long the oldest of those
// has waited of which a process has said it.
func (k *Key) waits(now Instant) backend.Waits {
	all := backend.Waits{Calls: len(k.Queue)}
	for _, in := range k.Queue[:min(len(k.Queue), backend.MaxWaits)] {
		for _, w := range k.Waits {
			if w.Locker == in.Locker {
				all.Calls += w.Calls - 1
				all.Oldest = max(all.Oldest, age(w.Since, now))
			}
		}
	}
	return all
}

// leaveQueue removes a request from the queue. A queue without waiters has no TTL.
func (k *Key) leaveQueue(locker, request string) {
	if k.Queue = slices.DeleteFunc(slices.Clone(k.Queue), isWaiter(locker, request)); len(k.Queue) == 0 {
		k.Queue, k.QueueExpires = nil, 0
	}
}

// ended reports whether the request has ended, so that this copy of it is a late duplicate.
func (k *Key) ended(id string) bool { return slices.Contains(k.Ended, id) }

func isWaiter(locker, request string) func(Waiter) bool {
	return func(w Waiter) bool { return w.Locker == locker && w.Request == request }
}

func byArrival(a, b Waiter) int {
	return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.Locker, b.Locker), cmp.Compare(a.Request, b.Request))
}

func micros(d time.Duration) Span    { return d.Microseconds() }
func duration(us Span) time.Duration { return time.Duration(us) * time.Microsecond }

// wholeMillis returns d, rounded down to whole milliseconds.
func wholeMillis(d time.Duration) Span { return d.Milliseconds() * 1000 }

// ceilMillis returns us, rounded up to whole milliseconds.
func ceilMillis(us Span) Span { return (us + 999) / 1000 * 1000 }
