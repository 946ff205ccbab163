package rules

import (
	"cmp"
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
	shareKeep  = Span(24 * time.Hour / time.Microsecond)  // how long the data of a phase outlives the longest lease, while a share is held
	headSilent = Span(5 * time.Second / time.Microsecond) // a waiter that does not send its request again for that long is dead
	maxServed  = 400                                      // maximum number of requests of the queue that one request serves
)

// Share is a granted share.
type Share struct {
	ID string
	backend.Share
	Cooling        bool // released; the weight counts for the rest of the cooldown
	End, Since     Instant
	Locker, Holder string
}

// Member returns the text that names the share in Redis.
func (s *Share) Member() string {
	if s.Cooling {
		return "c" + s.Text(s.ID)
	}
	return s.Text(s.ID)
}

// acquireShare grants a share of the key to a request, or returns why the request does not get one.
func acquireShare(k Key, r *backend.AcquireRequest, e Env) (Key, backend.AcquireReply, []Notice) {
	k.Expire(e.Now)
	k.unfold(e.Now)
	k.clampEnd(e.Now)
	swept, closed := k.sweep(e.Now)
	k.Flow.load(e.Now)
	share, rs := k.restricted(r.Share, e.Now)
	notices := k.passPhase(closed, e)
	switch {
	case k.ended(r.ID): //planted:rules-late-duplicate-share
		// Checked before the shares, because a late duplicate may have got a share, see serve.
		return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}, notices
	case k.shareAt(r.ID) >= 0:
		if k.Revoked {
			return k, backend.AcquireReply{Outcome: backend.OutcomeEnded}, nil
		}
	case k.State == Reserved && k.Owner == r.ID:
	case k.live(e.Now) && (k.State != Shared || k.Revoked):
		return busyShare(k, r, e, notices)
	case k.paused(e.Now):
		return busyShare(k, r, e, notices)
	case rs.any():
		notices = append(notices, k.serveRated(r.ID, e)...)
		if k.live(e.Now) && k.State != Shared || k.behind(r, e) || !k.fits(share) || k.Flow.due(rs) > e.Now {
			k, reply := busyRated(k, r, e)
			return k, reply, notices
		}
	case k.State == Shared:
		notices = k.serve(r.ID, "", e)
		if k.shareAt(r.ID) < 0 && (len(k.Queue) > 0 || !k.fits(share)) { //planted:rules-share-fits
			return busyShare(k, r, e, notices)
		}
	}
	opens, rated := k.State != Shared, rs.any()
	waits := len(k.Queue) > 0
	var reply backend.AcquireReply
	if rated && k.shareAt(r.ID) < 0 {
		reply.Rest, reply.Reset = k.Flow.spend(rs, 1, e.Now)
	}
	if opens {
		k.openPhase(r.ID, e.Now)
	}
	k.admit(Share{ID: r.ID, Share: r.Share, End: e.Now + micros(r.Lease), Since: e.Now, Locker: e.Locker, Holder: r.Holder}, micros(r.Lease), e.Now)
	if r.Queue {
		k.leaveQueue(e.Locker, r.ID)
	}
	rest, reset := reply.Rest, reply.Reset
	reply = k.granted(backend.KindExclusive)
	reply.Phase, reply.GrantedAt, reply.Rest, reply.Reset = k.Owner, time.UnixMicro(e.Now), rest, reset
	if opens || swept || rated && waits {
		notices = append(notices, k.serve("", "", e)...) // other requests in the queue may fit now
	}
	return k, reply, notices
}

// busyShare returns the busy reply to a request that does not fit.
func busyShare(k Key, r *backend.AcquireRequest, e Env, notices []Notice) (Key, backend.AcquireReply, []Notice) {
	k, reply := busy(k, r, e, false)
	if k.State == Shared && k.paused(e.Now) {
		reply = backend.AcquireReply{
			Outcome: backend.OutcomeBusy, Remaining: k.pausedFor(e.Now), Queue: len(k.Queue), Shares: k.Weights(), Place: k.place(r.ID, e), Paused: k.PauseReason,
		}
	} else if k.State == Shared {
		first := k.Shares[0]
		reply.Remaining = duration(first.End - e.Now) // the earliest time at which the request may fit
		if first.Cooling {
			reply.Holder, reply.Locker, reply.HeldFor = "", "", 0
		}
	}
	return k, reply, notices
}

// renewShare extends a share. It never shortens a share and never revives an expired one.
func renewShare(k Key, r *backend.RenewRequest, e Env) (Key, backend.Verdict) {
	k.Expire(e.Now)
	if !k.Plain {
		k.clampEnd(e.Now)
	}
	i := k.shareAt(r.ID)
	switch {
	case i < 0 || k.Shares[i].End <= e.Now:
		return k, backend.VerdictLost
	case k.Revoked:
		return k, backend.VerdictRevoked
	}
	s, holder, locker := k.Shares[i], k.Holder, k.Locker
	s.End = e.Now + micros(r.Lease)
	if r.Token != 0 { // the share was handed off
		s.Holder, s.Since, holder, locker = r.Holder, e.Now, r.Holder, s.Locker
	}
	k.admit(s, micros(r.Lease), e.Now)
	k.Holder, k.Locker = holder, locker
	return k, backend.VerdictKept
}

// ending is the end of a share, or the withdrawal of a request for one.
type ending struct {
	key       *backend.Key
	id        string
	cooldown  Span
	repeated  bool
	queued    bool // the request may be in the queue
	retention time.Duration
}

// endShare ends a share, or withdraws a request for one.
func endShare(k Key, r ending, e Env) (Key, backend.ReleaseReply, []Notice) {
	k.Expire(e.Now)
	k.unfold(e.Now)
	k.clampEnd(e.Now)
	_, closed := k.sweep(e.Now)
	wasQueued := r.queued && slices.ContainsFunc(k.Queue, isWaiter(e.Locker, r.id))
	if wasQueued {
		k.leaveQueue(e.Locker, r.id)
	}
	i := k.shareAt(r.id)
	ours := i >= 0 || k.State == Reserved && k.Owner == r.id
	freed := "" // the member that this request has ended, as it is now
	switch {
	case i >= 0 && r.cooldown > 0:
		s := k.Shares[i]
		k.removeShare(i)
		s.Cooling, s.End = true, e.Now+r.cooldown
		if j := slices.IndexFunc(k.Shares, func(o Share) bool { return o.ID == s.ID }); j >= 0 { // a share of an earlier grant of this id cools already
			s.End = max(s.End, k.Shares[j].End)
			k.removeShare(j)
		}
		k.Length = max(k.Length, r.cooldown)
		k.insertShare(s)
		k.keepShares(e.Now)
		freed = s.Member()
	case i >= 0:
		freed = k.Shares[i].Member()
		k.removeShare(i)
	}
	if i >= 0 && len(k.Shares) > 0 {
		k.End = k.Shares[len(k.Shares)-1].End
		k.endRevocation() //planted:rules-revocation-ends
		k.keepCooling(e.Now)
	}
	if ours && len(k.Shares) == 0 {
		if !r.repeated && len(k.Ended) == 0 && k.ParkingLocker == "" && !k.Abandoned && len(k.Queue) == 0 && !k.paused(e.Now) && e.Now > max(k.Used, k.Token) { // as in Release
			k.forget()
			return k, backend.ReleaseReply{Released: true}, nil
		}
		k.closePhase()
		if !k.Abandoned && !k.Empty() {
			k.keep(r.retention, e.Now)
		}
	}
	if r.repeated {
		k.remember(r.id, e.Now)
	} else if ours && k.State == Free && len(k.Ended) > 0 {
		k.outlive(minute, e.Now)
	}
	if ours && k.State == Free {
		k.keepParked(e.Now)
	}
	reply := backend.ReleaseReply{Released: ours}
	var notices []Notice
	switch {
	case k.State == Shared && !k.Revoked:
		notices = k.serve("", freed, e) //planted:rules-share-served
	case ours && k.State == Free:
		notices = k.reserve(e)
	case wasQueued && k.State == Cooling && k.live(e.Now):
		notices = k.announce(e)
	case wasQueued && k.State == Free:
		notices = k.serveRated("", e)
	default:
		notices = k.passPhase(closed, e)
	}
	reply.Parked = ours && r.cooldown == 0 && !k.paused(e.Now) && k.offersParked(notices)
	if r.queued && (reply.Parked || wasQueued && k.State == Shared && !k.paused(e.Now) && k.offersParked(notices)) {
		notices = append(notices, wakeNotice(k, r.key)) // the earlier releases did not report the entries
	}
	return k, reply, notices
}

// offersParked reports whether a parked entry may fit after the end of a share, or after a request
// has left the queue.
func (k *Key) offersParked(served []Notice) bool {
	return k.ParkingLocker != "" && len(served) == 0 && len(k.Queue) == 0 && !k.Revoked
}

// serve grants a share to each request at the front of the queue that fits. Such a share lasts for
// the time of a reservation, and its request then extends it. A request whose process cannot be
// notified is removed. The first request is also removed if it does not fit and its process is
// silent. asker is the id of the current request, whose process is not silent. freed is the share
// that the current request has ended, see tell.
func (k *Key) serve(asker, freed string, e Env) (notices []Notice) {
	if k.paused(e.Now) { //planted:rules-paused-not-served
		return nil
	}
	for range maxServed {
		if len(k.Queue) == 0 {
			k.Head, k.HeadSeen = "", 0
			return notices
		}
		k.Flow.load(e.Now)
		first := k.Queue[0]
		share, rs := k.restricted(first.Share, e.Now)
		switch {
		case rs.any():
			told, gone := k.serveHead(first, asker, freed, e)
			if notices = append(notices, told...); gone {
				continue
			}
			return notices
		case k.State == Free:
			return append(notices, k.reserve(e)...)
		}
		isNew := k.Head != first.Request
		switch {
		case share.Limit > 0 && k.fits(share):
			k.leaveQueue(first.Locker, first.Request)
			if e.Listeners(first.Locker) > 0 {
				k.admit(Share{ID: first.Request, Share: first.Share, End: e.Now + reserveTime, Since: e.Now, Locker: first.Locker}, reserveTime, e.Now)
				notices = append(notices, turn(first))
			}
			continue
		case isNew || asker == first.Request || k.HeadSeen > e.Now: // in the last case the clock was set back
			k.Head, k.HeadSeen = first.Request, e.Now
		}
		if e.Now-k.HeadSeen <= headSilent { //planted:rules-head-keeps-its-place
			if asker != first.Request {
				notices = append(notices, k.tell(first, isNew, freed, e.Now)...)
			}
			return notices
		}
		k.leaveQueue(first.Locker, first.Request)
	}
	return notices
}

// tell tells the first request of the queue how soon the cooldown ends that it waits for. A share
// may fit at the end of the first cooldown. The whole key is free at the end of the last one, which
// is known when no share is held. isNew is set if the request has just become the first. Otherwise
// only the share freed may have changed that time.
func (k *Key) tell(first Waiter, isNew bool, freed string, now Instant) []Notice {
	if !isNew && freed == "" {
		return nil
	}
	if first.Share.Limit == 0 {
		if k.HeldWeights() > 0 {
			return nil
		}
		return []Notice{coolingUntil(first, k.End, now)}
	}
	i := slices.IndexFunc(k.Shares[:min(len(k.Shares), 10)], func(s Share) bool { return s.Cooling }) // few of the shares before the first cooldown are held
	if i < 0 || !isNew && k.Shares[i].Member() != freed {
		return nil
	}
	return []Notice{coolingUntil(first, k.Shares[i].End, now)} //planted:rules-cooldown-told
}

// openPhase makes the key shared. id names the phase.
func (k *Key) openPhase(id string, now Instant) {
	token := max(k.GreatestToken()+1, now) //planted:rules-phase-token
	k.Abandoned = k.Abandoned || k.State == Held
	k.State, k.Owner, k.Locker, k.Holder, k.End, k.Length, k.Revoked, k.Replaced = Shared, id, "", "", 0, 0, false, false
	k.Token, k.Shares = token, nil
}

// closePhase frees a key without shares.
func (k *Key) closePhase() {
	if k.State == Shared {
		k.Holder = ""
	}
	k.Shares, k.SharesExpires, k.Head, k.HeadSeen = nil, 0, "", 0
	k.free()
}

// passPhase reserves a key whose phase ended because all its shares expired. Only requests for a
// share and withdrawals call it. An exclusive request gets an expired key at once.
func (k *Key) passPhase(closed bool, e Env) []Notice {
	if !closed || k.State != Free { //planted:rules-phase-passed-on
		return nil
	}
	return k.reserve(e)
}

// admit adds a share to the phase, or extends it.
func (k *Key) admit(s Share, length Span, now Instant) {
	k.End = max(k.End, s.End)
	if i := k.shareAt(s.ID); i >= 0 { //planted:rules-share-counts-once
		s.End = max(s.End, k.Shares[i].End)
		k.removeShare(i)
	}
	k.insertShare(s)
	if k.Length = max(k.Length, length); s.Holder != "" {
		k.Holder, k.Locker = s.Holder, s.Locker
	}
	k.keepShares(now)
}

// keepShares sets the TTLs of a phase.
func (k *Key) keepShares(now Instant) {
	k.Expires = now + k.Length/1000*1000 + shareKeep
	k.SharesExpires = k.Expires
}

// keepCooling sets the TTLs of a phase in which all shares cool. No renewal follows, so its data is
// kept only for a minute after the last cooldown, like the data of a free key. The mark of an abandoned
// hold keeps it.
func (k *Key) keepCooling(now Instant) {
	if k.HeldWeights() > 0 || k.Abandoned {
		return
	}
	k.Expires = now + ceilMillis(max(k.End, k.Paused)-now) + minute
	if k.ParkingLocker != "" {
		k.Expires = max(k.Expires, now+micros(backend.ParkedTTL))
	}
	k.SharesExpires = k.Expires
}

// sweep removes the shares that have expired. swept reports whether there were any, and closed
// whether the phase ended. If a share ends after its phase, the clock was set back, and sweep
// shortens the share.
func (k *Key) sweep(now Instant) (swept, closed bool) {
	if k.State != Shared {
		return false, false
	}
	if n := len(k.Shares); n > 0 && k.Shares[n-1].End > k.End {
		k.Shares = slices.Clone(k.Shares)
		for i := range k.Shares {
			k.Shares[i].End = min(k.Shares[i].End, k.End)
		}
		slices.SortFunc(k.Shares, byEnd)
	}
	ended := slices.IndexFunc(k.Shares, func(s Share) bool { return s.End > now })
	if ended < 0 {
		ended = len(k.Shares)
	}
	k.Shares, swept = k.Shares[ended:], ended > 0
	if closed = len(k.Shares) == 0; closed {
		k.closePhase()
	} else if swept {
		k.endRevocation()
	}
	return swept, closed
}

// endRevocation ends the revocation of a phase without a held share. Shares that cool have no
// handler.
func (k *Key) endRevocation() {
	if k.State == Shared && k.HeldWeights() == 0 {
		k.Revoked, k.Replaced = false, false
	}
}

func (k *Key) shareAt(id string) int {
	return slices.IndexFunc(k.Shares, func(s Share) bool { return s.ID == id && !s.Cooling })
}

func (k *Key) insertShare(s Share) {
	i, _ := slices.BinarySearchFunc(k.Shares, s, byEnd)
	k.Shares = slices.Insert(slices.Clone(k.Shares), i, s)
}

func (k *Key) removeShare(i int) {
	k.Shares = slices.Delete(slices.Clone(k.Shares), i, i+1)
}

func byEnd(a, b Share) int {
	return cmp.Or(cmp.Compare(a.End, b.End), cmp.Compare(a.Member(), b.Member()))
}

// Weights returns the sum of the weights of the phase.
func (k *Key) Weights() (sum int) {
	for i := range k.Shares {
		sum += k.Shares[i].Weight
	}
	return sum
}

// HeldWeights returns the sum of the weights of the shares that do not cool.
func (k *Key) HeldWeights() (sum int) {
	for i := range k.Shares {
		if !k.Shares[i].Cooling {
			sum += k.Shares[i].Weight
		}
	}
	return sum
}

// fits reports whether s fits beside the shares of the phase.
func (k *Key) fits(s backend.Share) bool { return k.Weights()+s.Weight <= s.Limit }

// inspectShares adds the shares of a shared key to its status.
func (k *Key) inspectShares(s *backend.Status, now Instant) {
	s.State, s.Locker = backend.StateShared, k.Locker
	for i := range k.Shares {
		h := &k.Shares[i]
		if h.End <= now {
			continue
		}
		if s.Weights += h.Weight; len(s.Shares) < backend.MaxShares {
			s.Shares = append(s.Shares, backend.ShareHeld{
				Share: h.Share, Locker: h.Locker, Holder: h.Holder, HeldFor: age(h.Since, now), Remaining: duration(min(h.End, k.End) - now), Cooling: h.Cooling,
			})
		}
	}
}

// revokeShares notifies the holders of all shares.
func (k *Key) revokeShares(now Instant) (notices []Notice) {
	for i := range k.Shares {
		if s := &k.Shares[i]; !s.Cooling && s.End > now {
			notices = append(notices, Notice{s.Locker, backend.Notification{Event: backend.EventRevoked, Request: s.ID}})
		}
	}
	return notices
}

// sharesHeld reports whether a share is held, and has not expired.
func (k *Key) sharesHeld(now Instant) bool {
	return slices.ContainsFunc(k.Shares, func(s Share) bool { return !s.Cooling && s.End > now })
}
