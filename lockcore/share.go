package lockcore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// share is a share of a key that the backend has granted to this process. It has a grant for each
// call that runs under it, so that the loss of one hold does not end the others. Holds follow each
// other under one of these grants by hand-off, as under an exclusive grant.
//
// Unlimited shares without MinHold are open for batchTime. During that time further calls join
// without a command, if no call of this process waits for the key. So a process sends at most 200
// requests a second for such a key. A waiting request for the key alone is overtaken for at most
// that time.
//
// The races:
//
//   - The mutex of the shard guards users. A call that joins is counted before its turn is sent. So
//     the last user, which ends the share in the backend, is known under the mutex.
//   - A hold of a share does not keep the leadership: its call passes it on at once. So the holds
//     of several shares, and the next request of this process, go on side by side.
//   - While the leader waits for its next send, a share of this process may be handed to it,
//     because it is the oldest of the waiting calls. The goroutine that removes the leader from
//     keyQueue.idle under the mutex wins: the leader itself, or the goroutine that hands the share
//     over.
//   - If a lease is lost, or a notification says that it is revoked, the share is closed, and no
//     call joins. The other grants of the share find the loss with their own renewals. A grant that
//     is registered after the share was closed is renewed at once.
type share struct {
	backend.Share
	phase string    // names all shares of the key that are held at the same time
	rated bool      // the rate of the key let it begin, so that no other call takes its place
	first *grant    // of the call that requested the share; its constant fields only
	sent  time.Time // when that call sent its request

	// Guarded by the mutex of the shard.
	users  int  // grants of the share, and calls that are about to get one
	closed bool // no call joins

	// extent is the time in ns from sent to the latest end on the server that a renewal or Extend
	// has set.
	extent atomic.Int64

	grants []*grant // see addGrant; guarded by Locker.mu
}

// extended records that the share lasts at least until end on the server.
func (s *share) extended(end time.Time) {
	for d := int64(end.Sub(s.sent)); ; {
		old := s.extent.Load()
		if d <= old || s.extent.CompareAndSwap(old, d) {
			return
		}
	}
}

// joinableLocked reports whether a call may run under s. The caller holds the mutex of the shard.
func (s *share) joinableLocked(c *call, now time.Time) bool {
	g := s.first
	return s.Limit == backend.Unlimited && !s.closed && !s.rated && s.users < backend.TokensPerGrant && now.Sub(g.since) < batchTime && //planted:share-open-for-a-moment
		c.limit.share() == s.Share && c.terms.Lease == g.leaseTerm && c.fixed == g.fixed && c.terms.MinHold == 0
}

// joinLocked returns the share of the key that c may join, and counts c as its user.
func (s *shard) joinLocked(c *call) *share {
	if c.limit.N != Unlimited {
		return nil
	}
	open := s.shares[c.key]
	if open == nil || !open.joinableLocked(c, time.Now()) {
		return nil
	}
	open.users++
	return open
}

// newGrant returns a grant of s for c.
func (s *share) newGrant(c *call) *grant {
	o, now := s.first, time.Now()
	return &grant{
		l: o.l, queue: o.queue, id: o.id, share: s, leaseTerm: o.leaseTerm, fixed: o.fixed, keep: o.keep, attempt: 1, repeated: o.repeated, since: now,
		granted: o.granted + now.Sub(o.since).Microseconds(), firstToken: o.firstToken, sent: s.sent, lease: o.leaseTerm, requestedBy: c,
	}
}

// closeShare ends the time in which calls may join s.
func (q *keyQueue) closeShare(s *share) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closeShareLocked(s)
}

func (q *keyQueue) closeShareLocked(s *share) {
	s.closed = true
	if q.shares[q.key.Name] == s {
		delete(q.shares, q.key.Name)
	}
}

func (q *keyQueue) isClosed(s *share) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return s.closed
}

// leaveShare ends the use of s by one grant or call. last is true for the last user, which ends the
// share in the backend.
func (q *keyQueue) leaveShare(s *share) (last bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.users--; s.users > 0 { //planted:last-user-releases
		return false
	}
	q.closeShareLocked(s)
	return true
}

// joinFrontLocked removes the calls at the front of the queue that may join a share, and counts
// them as its users.
func (q *keyQueue) joinFrontLocked() (joined []*call, s *share) {
	for w := q.first; w != nil; w = q.first {
		open := q.joinLocked(w)
		if open == nil {
			break
		}
		q.removeLocked(w)
		joined, s = append(joined, w), open
	}
	return joined, s
}

// openShare lets other calls join the share of g, which was granted to c. The caller must be the
// leader. openShare passes the leadership on.
func (q *keyQueue) openShare(g *grant, c *call) {
	q.mu.Lock()
	q.lastReply = noReply
	if g.share.Limit == backend.Unlimited && c.terms.MinHold == 0 {
		if q.shares == nil {
			q.shares = map[string]*share{}
		}
		q.shares[q.key.Name] = g.share
	}
	q.mu.Unlock()
	q.passLeadership(nil, nil)
}

// handOffShare hands the share of a hold that has ended under g to the leader, which is the oldest
// waiting call. It does so until batchTime after the backend granted the share, even if g joined
// the share later. The next leader takes over the request of the leader, which may be in the remote
// queue. A leader that sends, or that requests another share, gets nothing. No other call gets the
// share either, because it would overtake the leader. Then the last user of the share releases it.
//
// handed is the number of hand-offs under g, or 0 if the share was not handed off.
func (q *keyQueue) handOffShare(g *grant, now time.Time) (handed int) {
	q.mu.Lock()
	var w *call
	if current := q.queues[q.key.Kind][q.key.Name]; current != nil && current.first != nil { // else no call can take over the request
		w = current.idle
		if b := current.busy; w != nil && b != nil && w.limit.N > 0 && b.Shares > w.limit.N {
			w = nil // other shares, with a greater limit, are held beside this one
		}
	}
	if now.Sub(g.share.first.since) >= batchTime { //planted:share-handed-on-for-a-moment
		w = nil
	}
	// The last user ends an unlimited share, perhaps before the MinHold of w is over.
	if w == nil || !g.canHandTo(w, now) || w.terms.MinHold > 0 && g.share.Limit == backend.Unlimited {
		q.mu.Unlock()
		return 0
	}
	w.queue.idle = nil
	g.handOffs++
	handed = int(g.handOffs)
	q.mu.Unlock()
	w.give(turn{grant: g})
	return handed
}

// awaitOffer lets other goroutines hand a share to the call, which is the leader, until endOffer.
func (c *call) awaitOffer() {
	if c.given == nil {
		c.makeGiven()
	}
	c.queue.mu.Lock()
	c.queue.idle = c
	c.queue.mu.Unlock()
}

// endOffer ends awaitOffer, and takes the share that was handed to the call meanwhile. The next
// send of req may have been due at the same time. So the next leader sends it at once.
func (c *call) endOffer(req *request) {
	q := c.queue
	q.mu.Lock()
	handed := q.idle != c
	if !handed {
		q.idle = nil
	}
	q.mu.Unlock()
	if handed && c.owned.share == nil {
		<-c.given
		c.owned.share = c.turn.grant
		req.nextTry, req.backoff = time.Time{}, false
	}
}

// runOffered starts the hold of the leader under a share that was handed to it, and passes the
// request on. It returns nil if the lease is over. Then the call is still the leader.
func (c *call) runOffered(req *request) *hold {
	c.leads = true
	h, _ := c.runShare(c.owned.share) // no error, because the grant is registered already
	c.leads = false
	if h != nil {
		c.resign(nil, req)
	}
	return h
}

// dropShare gives up the share of g, which its call does not want. The share is handed to the
// leader or released. A grant that joins is only discarded, because runOffered needs a registered
// one.
func (q *keyQueue) dropShare(g *grant) {
	if g.joins() || q.handOffShare(g, time.Now()) == 0 {
		g.discard()
	}
}

// joins reports whether g was made for a call that joins a share, and has had no hold. Then it is
// not registered yet.
func (g *grant) joins() bool {
	_, holds := g.lastHold()
	return holds == 0 && g != g.share.first
}

// runShare starts the hold of a call that has joined a share, or to which g was handed. If the
// lease is over, it returns neither a hold nor an error, and the call waits again. It returns
// ErrClosed after Close.
func (c *call) runShare(g *grant) (*hold, error) {
	l := c.l
	c.owned.share = g
	if g.joins() {
		if !l.addGrant(g) {
			c.owned.share = nil
			g.discard()
			return nil, ErrClosed
		}
		if !g.fixed {
			l.watchdog.add(g, g.since)
		}
		if g.queue.isClosed(g.share) { // the share may have been revoked before g was registered
			l.watchdog.renewNow(g)
		}
	}
	h := g.startHold(c)
	c.owned.share, c.owned.hold = nil, h
	if h == nil {
		g.discard()
	}
	return h, nil
}

// discardShare ends the use of the share by a grant that no call wants. The last user withdraws the
// share if no hold ran under it, and releases it otherwise.
func (g *grant) discardShare() {
	if g.queue.leaveShare(g.share) {
		if _, holds := g.lastHold(); holds == 0 && g == g.share.first {
			g.l.backend.Withdraw(backend.WithdrawRequest{
				Key: &g.queue.key, ID: g.id, Retention: g.keep, Granted: true, Repeated: g.repeated, Share: g.share.Share,
			})
		} else {
			g.l.backend.ReleaseLater(g.releaseRequest(outcome{}), g.serverEnd())
		}
	}
	g.l.removeGrant(g)
}

// endShare ends a hold of a share. It hands the share off, or the last user of the share ends it in
// the backend.
func (h *hold) endShare(ctx context.Context, e outcome, alive bool, now time.Time) (handed, stale bool, err error) {
	g := h.grant
	if n := 0; alive {
		if n = g.queue.handOffShare(g, now); n == 1 {
			g.l.watchdog.publishSoon(g)
		}
		if n > 0 {
			return true, false, nil
		}
	}
	g.close()
	if !g.queue.leaveShare(g.share) {
		return false, false, nil
	}
	stale, err = h.release(ctx, e)
	return false, stale, err
}
