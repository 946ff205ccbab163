package memory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// This file contains the rules of shares. They have the form of those in rules.go. The first share
// of a free key opens a phase, and the end of the last one closes it. All shares of a phase have
// the same token.
//
// A request for a share is granted if the weights of the phase leave room for it and no request is
// in the queue. The queue is served in its order. If its first request does not fit, all requests
// behind it wait too. So light requests do not overtake a heavy one, and shares do not overtake a
// request for the key alone.

const (
	shareKeep  = span(24 * time.Hour / time.Microsecond)  // how long the data of a phase outlives the longest lease, while a share is held
	headSilent = span(5 * time.Second / time.Microsecond) // a waiter that does not send its request again for that long is dead
	maxServed  = 400                                      // maximum number of requests of the queue that one request serves
)

// share is a granted share.
type share struct {
	id string
	backend.Share
	cooling        bool // released; the weight counts for the rest of the cooldown
	end, since     instant
	locker, holder string
}

// member returns the text that names the share in Redis.
func (s *share) member() string {
	if s.cooling {
		return "c" + shareText(s.id, s.Share)
	}
	return shareText(s.id, s.Share)
}

// shareText returns the text of a request in queues and sets: its id, and its share if it has one.
func shareText(id string, s backend.Share) string {
	if s.Limit == 0 {
		return id
	}
	return fmt.Sprintf("%s/%d/%d/", id, s.Limit, s.Weight)
}

// acquireShare grants a share of the key to a request, or returns why the request does not get one.
func acquireShare(k key, r *backend.AcquireRequest, e env) (key, backend.AcquireReply, []notice) {
	k.expire(e.now)
	k.unfold(e.now)
	k.clampEnd(e.now)
	swept, closed := k.sweep(e.now)
	notices := k.passPhase(closed, e)
	switch {
	case slices.Contains(k.ended, r.ID): //planted:rules-late-duplicate-share
		// Checked before the shares, because a late duplicate may have got a share, see serve.
		return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}, notices
	case k.shareAt(r.ID) >= 0:
		if k.revoked {
			return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}, nil
		}
	case k.state == reserved && k.owner == r.ID:
	case k.live(e.now) && (k.state != shared || k.revoked):
		return busyShare(k, r, e, notices)
	case k.state == shared:
		notices = k.serve(r.ID, "", e)
		if k.shareAt(r.ID) < 0 && (len(k.queue) > 0 || !k.fits(r.Share)) { //planted:rules-share-fits
			return busyShare(k, r, e, notices)
		}
	}
	opens := k.state != shared
	if opens {
		k.openPhase(r.ID, e.now)
	}
	k.admit(share{id: r.ID, Share: r.Share, end: e.now + micros(r.Lease), since: e.now, locker: e.locker, holder: r.Holder}, micros(r.Lease), e.now)
	if r.Queue {
		k.leaveQueue(e.locker, r.ID)
	}
	reply := k.granted(backend.KindExclusive)
	reply.Phase, reply.GrantedAt = k.owner, time.UnixMicro(e.now)
	if opens || swept {
		notices = append(notices, k.serve("", "", e)...) // other requests in the queue may fit now
	}
	return k, reply, notices
}

// busyShare returns the busy reply to a request that does not fit.
func busyShare(k key, r *backend.AcquireRequest, e env, notices []notice) (key, backend.AcquireReply, []notice) {
	k, reply := busy(k, r, e, false)
	if k.state == shared {
		first := k.shares[0]
		reply.Remaining = duration(first.end - e.now) // the earliest time at which the request may fit
		if first.cooling {
			reply.Holder, reply.Locker, reply.HeldFor = "", "", 0
		}
	}
	return k, reply, notices
}

// renewShare extends a share. It never shortens a share and never revives an expired one.
func renewShare(k key, r *backend.RenewRequest, e env) (key, backend.Verdict) {
	k.expire(e.now)
	if !k.plain {
		k.clampEnd(e.now)
	}
	i := k.shareAt(r.ID)
	switch {
	case i < 0 || k.shares[i].end <= e.now:
		return k, backend.VerdictLost
	case k.revoked:
		return k, backend.VerdictRevoked
	}
	s, holder, locker := k.shares[i], k.holder, k.locker
	s.end = e.now + micros(r.Lease)
	if r.Token != 0 { // the share was handed off
		s.holder, s.since, holder, locker = r.Holder, e.now, r.Holder, s.locker
	}
	k.admit(s, micros(r.Lease), e.now)
	k.holder, k.locker = holder, locker
	return k, backend.VerdictKept
}

// ending is the end of a share, or the withdrawal of a request for one.
type ending struct {
	key       *backend.Key
	id        string
	cooldown  span
	repeated  bool
	queued    bool // the request may be in the queue
	retention time.Duration
}

// releaseShare ends a share, or withdraws a request for one: its queue entry, its reservation or
// its share. During a cooldown the weight of the share still counts.
func releaseShare(k key, r ending, e env) (key, backend.ReleaseReply, []notice) {
	k.expire(e.now)
	k.unfold(e.now)
	k.clampEnd(e.now)
	_, closed := k.sweep(e.now)
	left := r.queued && slices.ContainsFunc(k.queue, isWaiter(e.locker, r.id))
	if left {
		k.leaveQueue(e.locker, r.id)
	}
	i := k.shareAt(r.id)
	ours := i >= 0 || k.state == reserved && k.owner == r.id
	freed := "" // the member that this request has ended, as it is now
	switch {
	case i >= 0 && r.cooldown > 0:
		s := k.shares[i]
		k.removeShare(i)
		s.cooling, s.end = true, e.now+r.cooldown
		if j := slices.IndexFunc(k.shares, func(o share) bool { return o.id == s.id }); j >= 0 { // a share of an earlier grant of this id cools already
			s.end = max(s.end, k.shares[j].end)
			k.removeShare(j)
		}
		k.length = max(k.length, r.cooldown)
		k.insertShare(s)
		k.keepShares(e.now)
		freed = s.member()
	case i >= 0:
		freed = k.shares[i].member()
		k.removeShare(i)
	}
	if i >= 0 && len(k.shares) > 0 {
		k.end = k.shares[len(k.shares)-1].end
		k.endRevocation() //planted:rules-revocation-ends
		k.keepCooling(e.now)
	}
	if ours && len(k.shares) == 0 {
		if !r.repeated && len(k.ended) == 0 && k.waker == "" && !k.abandoned && len(k.queue) == 0 && e.now > max(k.used, k.token) { // as in release
			k.forget()
			return k, backend.ReleaseReply{Released: true}, nil
		}
		k.closePhase()
		if !k.abandoned {
			k.keep(r.retention, e.now)
		}
	}
	if r.repeated {
		k.remember(r.id, e.now)
	} else if ours && k.state == free && len(k.ended) > 0 {
		k.outlive(minute, e.now)
	}
	if ours && k.state == free {
		k.keepWaker(e.now)
	}
	reply := backend.ReleaseReply{Released: ours}
	var notices []notice
	switch {
	case k.state == shared && !k.revoked:
		notices = k.serve("", freed, e) //planted:rules-share-served
	case ours && k.state == free:
		notices = k.reserve(e)
	case left && k.state == cooling && k.live(e.now):
		notices = k.announce(e)
	default:
		notices = k.passPhase(closed, e)
	}
	reply.Parked = ours && r.cooldown == 0 && k.offersParked(notices)
	if r.queued && (reply.Parked || left && k.state == shared && k.offersParked(notices)) {
		notices = append(notices, wakeNotice(k, r.key)) // the earlier releases did not report the entries
	}
	return k, reply, notices
}

// offersParked reports whether a parked entry may fit after the end of a share, or after a request
// has left the queue.
func (k *key) offersParked(served []notice) bool {
	return k.waker != "" && len(served) == 0 && len(k.queue) == 0 && !k.revoked
}

// withdrawShare withdraws a request for a share that never ran.
func withdrawShare(k key, r *backend.WithdrawRequest, e env) (key, []notice) {
	k, _, notices := releaseShare(k, ending{key: r.Key, id: r.ID, repeated: r.Repeated, queued: true, retention: r.Retention}, e)
	return k, notices
}

// serve grants a share to each request at the front of the queue that fits. Such a share lasts for
// the time of a reservation, and its request then extends it. A request whose process cannot be
// notified is removed. The first request is also removed if it does not fit and its process is
// silent. asker is the id of the current request, whose process is not silent. freed is the share
// that the current request has ended, see tell.
func (k *key) serve(asker, freed string, e env) (notices []notice) {
	for range maxServed {
		if len(k.queue) == 0 {
			k.head, k.headSeen = "", 0
			return notices
		}
		first := k.queue[0]
		isNew := k.head != first.request
		switch {
		case first.share.Limit > 0 && k.fits(first.share):
			k.leaveQueue(first.locker, first.request)
			if e.listeners(first.locker) > 0 {
				k.admit(share{id: first.request, Share: first.share, end: e.now + reserveTime, since: e.now, locker: first.locker}, reserveTime, e.now)
				notices = append(notices, turn(first))
			}
			continue
		case isNew || asker == first.request || k.headSeen > e.now: // in the last case the clock was set back
			k.head, k.headSeen = first.request, e.now
		}
		if e.now-k.headSeen <= headSilent { //planted:rules-head-keeps-its-place
			if asker != first.request {
				notices = append(notices, k.tell(first, isNew, freed, e.now)...)
			}
			return notices
		}
		k.leaveQueue(first.locker, first.request)
	}
	return notices
}

// tell tells the first request of the queue how soon the cooldown ends that it waits for. A share
// may fit at the end of the first cooldown. The whole key is free at the end of the last one, which
// is known when no share is held. isNew is set if the request has just become the first. Otherwise
// only the share freed may have changed that time.
func (k *key) tell(first waiter, isNew bool, freed string, now instant) []notice {
	if !isNew && freed == "" {
		return nil
	}
	if first.share.Limit == 0 {
		if k.heldWeights() > 0 {
			return nil
		}
		return []notice{coolingUntil(first, k.end, now)}
	}
	i := slices.IndexFunc(k.shares[:min(len(k.shares), 10)], func(s share) bool { return s.cooling }) // few of the shares before the first cooldown are held
	if i < 0 || !isNew && k.shares[i].member() != freed {
		return nil
	}
	return []notice{coolingUntil(first, k.shares[i].end, now)} //planted:rules-cooldown-told
}

// openPhase makes the key shared. id names the phase.
func (k *key) openPhase(id string, now instant) {
	token := max(k.greatestToken()+1, now) //planted:rules-phase-token
	k.abandoned = k.abandoned || k.state == held
	k.state, k.owner, k.locker, k.holder, k.end, k.length, k.revoked = shared, id, "", "", 0, 0, false
	k.token, k.shares = token, nil
}

// closePhase frees a key without shares.
func (k *key) closePhase() {
	if k.state == shared {
		k.holder = ""
	}
	k.shares, k.sharesExpires, k.head, k.headSeen = nil, 0, "", 0
	k.free()
}

// passPhase reserves a key whose phase ended because all its shares expired. Only requests for a
// share and withdrawals call it. An exclusive request gets an expired key at once.
func (k *key) passPhase(closed bool, e env) []notice {
	if !closed || k.state != free { //planted:rules-phase-passed-on
		return nil
	}
	return k.reserve(e)
}

// admit adds a share to the phase, or extends it.
func (k *key) admit(s share, length span, now instant) {
	k.end = max(k.end, s.end)
	if i := k.shareAt(s.id); i >= 0 { //planted:rules-share-counts-once
		s.end = max(s.end, k.shares[i].end)
		k.removeShare(i)
	}
	k.insertShare(s)
	if k.length = max(k.length, length); s.holder != "" {
		k.holder, k.locker = s.holder, s.locker
	}
	k.keepShares(now)
}

// keepShares sets the TTLs of a phase.
func (k *key) keepShares(now instant) {
	k.expires = now + k.length/1000*1000 + shareKeep
	k.sharesExpires = k.expires
}

// keepCooling sets the TTLs of a phase in which all shares cool. No renewal follows, so its data is
// kept only for a minute after the last cooldown, like that of a free key. The mark of an abandoned
// hold keeps it.
func (k *key) keepCooling(now instant) {
	if k.heldWeights() > 0 || k.abandoned {
		return
	}
	k.expires = now + ceilMillis(k.end-now) + minute
	if k.waker != "" {
		k.expires = max(k.expires, now+micros(backend.ParkedTTL))
	}
	k.sharesExpires = k.expires
}

// sweep removes the shares that have expired. swept reports whether there were any, and closed
// whether the phase ended. If a share ends after its phase, the clock was set back, and sweep
// shortens the share.
func (k *key) sweep(now instant) (swept, closed bool) {
	if k.state != shared {
		return false, false
	}
	if n := len(k.shares); n > 0 && k.shares[n-1].end > k.end {
		k.shares = slices.Clone(k.shares)
		for i := range k.shares {
			k.shares[i].end = min(k.shares[i].end, k.end)
		}
		slices.SortFunc(k.shares, byEnd)
	}
	ended := slices.IndexFunc(k.shares, func(s share) bool { return s.end > now })
	if ended < 0 {
		ended = len(k.shares)
	}
	k.shares, swept = k.shares[ended:], ended > 0
	if closed = len(k.shares) == 0; closed {
		k.closePhase()
	} else if swept {
		k.endRevocation()
	}
	return swept, closed
}

// endRevocation ends the revocation of a phase without a held share. Shares that cool have no
// handler.
func (k *key) endRevocation() {
	if k.state == shared && k.heldWeights() == 0 {
		k.revoked = false
	}
}

func (k *key) shareAt(id string) int {
	return slices.IndexFunc(k.shares, func(s share) bool { return s.id == id && !s.cooling })
}

func (k *key) insertShare(s share) {
	i, _ := slices.BinarySearchFunc(k.shares, s, byEnd)
	k.shares = slices.Insert(slices.Clone(k.shares), i, s)
}

func (k *key) removeShare(i int) {
	k.shares = slices.Delete(slices.Clone(k.shares), i, i+1)
}

func byEnd(a, b share) int {
	return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.member(), b.member()))
}

// weights returns the sum of the weights of the phase.
func (k *key) weights() (sum int) {
	for i := range k.shares {
		sum += k.shares[i].Weight
	}
	return sum
}

// heldWeights returns the sum of the weights of the shares that do not cool.
func (k *key) heldWeights() (sum int) {
	for i := range k.shares {
		if !k.shares[i].cooling {
			sum += k.shares[i].Weight
		}
	}
	return sum
}

// fits reports whether s fits beside the shares of the phase.
func (k *key) fits(s backend.Share) bool { return k.weights()+s.Weight <= s.Limit }

// inspectShares adds the shares of a shared key to its status.
func (k *key) inspectShares(s *backend.Status, now instant) {
	s.State, s.Locker = backend.StateShared, k.locker
	for i := range k.shares {
		h := &k.shares[i]
		if h.end <= now {
			continue
		}
		if s.Weights += h.Weight; len(s.Shares) < backend.MaxShares {
			s.Shares = append(s.Shares, backend.ShareHeld{
				Share: h.Share, Locker: h.locker, Holder: h.holder, HeldFor: age(h.since, now), Remaining: duration(min(h.end, k.end) - now), Cooling: h.cooling,
			})
		}
	}
}

// revokeShares notifies the holders of all shares.
func (k *key) revokeShares(now instant) (notices []notice) {
	for i := range k.shares {
		if s := &k.shares[i]; !s.cooling && s.end > now {
			notices = append(notices, notice{s.locker, backend.Notification{Event: backend.EventRevoked, Request: s.id}})
		}
	}
	return notices
}

// sharesHeld reports whether a share is held, and has not expired.
func (k *key) sharesHeld(now instant) bool {
	return slices.ContainsFunc(k.shares, func(s share) bool { return !s.cooling && s.end > now })
}
