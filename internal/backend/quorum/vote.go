package quorum

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// vote is the reply of one master to an AcquireRequest.
type vote struct {
	backend.AcquireReply
	err error
}

// votes are the replies to an AcquireRequest, by master; nil: none yet.
type votes []*vote

// count returns the number of replies that match.
func (v votes) count(is func(*vote) bool) (n int) {
	for _, one := range v {
		if one != nil && is(one) {
			n++
		}
	}
	return n
}

func granted(one *vote) bool   { return one.err == nil && one.Outcome == backend.OutcomeGranted }
func failed(one *vote) bool    { return one.err != nil }
func ended(one *vote) bool     { return one.err == nil && one.Outcome == backend.OutcomeEnded }
func abandoned(one *vote) bool { return granted(one) && one.Abandoned }

// refusedBy reports whether master i replied and did not grant the request.
func (v votes) refusedBy(i int) bool { return v[i] != nil && !granted(v[i]) && !failed(v[i]) }

// errs returns the errors, by master.
func (v votes) errs() []error {
	errs := make([]error, len(v))
	for i, one := range v {
		if one != nil {
			errs[i] = one.err
		}
	}
	return errs
}

// greatest returns the grant with the greatest token, or nil.
func (v votes) greatest() (g *vote) {
	for _, one := range v {
		if one != nil && granted(one) && (g == nil || one.Token > g.Token) {
			g = one
		}
	}
	return g
}

// busiest returns the busy reply that tells most about the holder, or nil.
func (v votes) busiest() (b *vote) {
	for _, one := range v {
		if one == nil || one.err != nil || one.Outcome != backend.OutcomeBusy {
			continue
		}
		if b == nil || b.Holder == "" && one.Holder != "" || (b.Holder == "") == (one.Holder == "") && one.Remaining > b.Remaining {
			b = one
		}
	}
	return b
}

// Acquire requests the key from all masters. It returns when a majority has granted it. If none
// does, it waits for all that replied last time, within their time limit.
//
// A request without a grant keeps its id, and so its place in the queue. A master that did not reply
// may have granted it. For other processes it then counts as failed, until the next round repeats the
// request or its end withdraws it.
//
// If the home has granted it and the others have not, it is the turn of this process, and the
// release of the hold before is still on its way to the others. So Acquire asks them again, within
// the time limit of one request.
//
// After a withdrawal the next request asks its home alone first, see nextHome. While that refuses it, it
// waits in the queue there and takes no vote from another process.
func (b *Backend) Acquire(ctx context.Context, r backend.AcquireRequest) (backend.AcquireReply, error) {
	sent := time.Now() // before the first send
	switch {
	case r.Key.Kind == backend.KindOnce:
		return backend.AcquireReply{Sent: sent}, errOnce
	case r.Share.Rate.N > 0:
		return backend.AcquireReply{Sent: sent}, errRate
	case r.Share.Limit > 0:
		return backend.AcquireReply{Sent: sent}, unsupported("shares", "one Redis")
	case r.Lease > b.servers.longest:
		return backend.AcquireReply{Sent: sent}, b.tooLong(r.Lease)
	}
	r.Timeout = min(r.Timeout, Limit(r.Lease))
	r.Floor = max(r.Floor, b.tokens.floor(sent))
	failing := b.servers.failing()
	home, alone := b.home(r.Key, failing), false
	if r.Home > 0 && failing[r.Home-1] == nil {
		home, alone = r.Home-1, r.First //planted:quorum-home-alone
	}
	v := make(votes, len(b.masters))
	last := new(refusals) // of the last round
	for pause := time.Millisecond; ; {
		round, refused, asked := r, last, everyMaster // a late goroutine of this round must not see the next one
		if alone {
			asked = home
		}
		b.collectVotes(ctx, v, asked, failing, r.Timeout, func(i int) (backend.AcquireReply, error) {
			one := round
			one.Queue = r.Queue && i == home
			reply, err := b.masters[i].Acquire(context.WithoutCancel(ctx), one)
			b.heard(i, reply.Sent, err)
			if err == nil && reply.Outcome == backend.OutcomeBusy && b.mayQueue(&round, i, home) && refused.add(i) {
				b.leaveQueue(&one, i)
			}
			return b.vote(i, reply, err)
		})
		if alone {
			if v.refusedBy(home) {
				break
			}
			alone = false // the rest is the same round: the others were not asked
			continue
		}
		turn := v[home] != nil && granted(v[home]) && v.count(granted) < b.majority && v.count(failed) <= len(v)-b.majority
		if !turn || time.Since(sent)+pause > r.Timeout || !sleep(ctx, pause) {
			break
		}
		pause *= 2
		r.First, last = false, new(refusals)
	}
	reply, err := b.result(ctx, &r, v, home, alone, sent)
	if err == nil && reply.Outcome == backend.OutcomeGranted {
		b.leaveQueues(&r, v, home, last)
	}
	return reply, err
}

// vote returns a reply of master i, or an error if it is a grant that does not count.
func (b *Backend) vote(i int, reply backend.AcquireReply, err error) (backend.AcquireReply, error) {
	if err == nil && reply.Outcome == backend.OutcomeGranted {
		err = b.servers.mayVote(i, reply.Sent)
	}
	return reply, err
}

// tooLong returns the error of a lease that a restarted master may forget and vote before its end.
func (b *Backend) tooLong(lease time.Duration) error {
	return unsupported(fmt.Sprintf("a lease of %v", lease), fmt.Sprintf("at most %v, or a greater Options.Terms.Lease in all programs: a restarted server does not vote for that long", b.servers.longest))
}

const everyMaster = -1

// collectVotes asks one master, or all that have not granted and not failed yet, until a majority has
// granted, at most for d. If a majority of the masters works, it does not wait for those that failed
// last time. A reply that arrives later is ignored.
func (b *Backend) collectVotes(ctx context.Context, v votes, asked int, failing []error, d time.Duration, acquire func(i int) (backend.AcquireReply, error)) {
	final := make([]bool, len(v))
	missing := 0 // replies that are awaited
	for i, one := range v {
		final[i] = one != nil && (granted(one) || failed(one)) || asked != everyMaster && i != asked
		if !final[i] {
			v[i] = nil
		}
		if failing[i] == nil {
			missing++
		}
	}
	late := time.NewTimer(d)
	defer late.Stop()
	askUntil(ctx, b, late.C, func(i int) (reply backend.AcquireReply, err error) {
		if final[i] {
			return reply, nil
		}
		return acquire(i)
	}, func(i int, reply backend.AcquireReply, err error) bool {
		if !final[i] {
			v[i] = &vote{reply, err}
		}
		if failing[i] == nil {
			missing--
		}
		return v.count(granted) >= b.majority || missing == 0
	})
	for i, err := range failing {
		if v[i] == nil && err != nil {
			v[i] = &vote{err: err}
		}
	}
}

// sleep waits for d, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// result returns the reply of the majority.
func (b *Backend) result(ctx context.Context, r *backend.AcquireRequest, v votes, home int, alone bool, sent time.Time) (reply backend.AcquireReply, err error) {
	b.tokens.learn(sent, r.Floor, v)
	arrived := v.count(func(*vote) bool { return true })
	if arrived == 0 {
		return backend.AcquireReply{Sent: sent}, backend.ErrClosed
	}
	holder := v.busiest()
	if v.count(granted) >= b.majority {
		token, err := b.raise(ctx, r, v)
		if err != nil {
			return backend.AcquireReply{Sent: sent, Repeated: true}, err
		}
		reply = v.greatest().AcquireReply
		reply.Token, reply.Sent, reply.Abandoned, reply.Plain = token, sent, v.count(abandoned) >= b.majority, false //planted:quorum-counts-from
		reply.Repeated = reply.Repeated || arrived < len(v) || v.count(failed) > 0
		return reply, nil
	}
	switch {
	case v.count(failed) > len(v)-b.majority:
		return backend.AcquireReply{Sent: sent, Repeated: true}, b.failure(v.errs())
	case v.count(ended) > 0:
		return backend.AcquireReply{Outcome: backend.OutcomeEnded, Sent: sent, Repeated: true}, nil
	case holder != nil:
		reply = holder.AcquireReply
		for _, one := range v {
			if one != nil {
				reply.Queue = max(reply.Queue, one.Queue) // the home alone has a queue
			}
		}
	}
	reply.Outcome, reply.Place, reply.Sent, reply.Repeated = backend.OutcomeBusy, 0, sent, true
	reply.Withdraw = v.count(granted) > 0 // so that two processes do not keep each other from a majority
	reply.RetryIn = pause(time.Since(sent))
	switch {
	case reply.Withdraw:
		reply.Home = 1 + v.nextHome(b.majority, home) //planted:quorum-next-home
	case r.Queue && alone:
		reply.RetryIn += min(max(reply.Remaining, longPause), longestPause)
	case r.Queue && v[home] != nil && !failed(v[home]):
		reply.RetryIn += longPause // the home notifies the process
	}
	return reply, nil
}

// nextHome returns the home of the next request after a withdrawal: the first master from home on that
// the holder has, if a majority reports the same holder. At a master that the holder has not got, the
// next request would be granted again, and withdrawn again, and would never be in a queue. Otherwise it
// is home, so that one of those that share the votes is the first.
func (v votes) nextHome(majority, home int) int {
	for i := range v {
		at := (home + i) % len(v)
		if v.refusedBy(at) && v[at].Locker != "" && v.count(func(one *vote) bool {
			return one.err == nil && one.Outcome == backend.OutcomeBusy && one.Locker == v[at].Locker
		}) >= majority {
			return at
		}
	}
	return home
}

// refusals are the masters that have refused a request. After the request was granted, it leaves
// the queue of each of them once: by the goroutine that has the refusal, or by leaveQueues, whichever
// sees the other's store.
type refusals struct {
	won     atomic.Bool
	refused [7]atomic.Bool
}

// add adds a refusal, and reports whether the caller has to leave the queue.
func (l *refusals) add(i int) bool {
	l.refused[i].Store(true)
	return l.won.Load() && l.take(i)
}

func (l *refusals) take(i int) bool { return l.refused[i].CompareAndSwap(true, false) }

// mayQueue reports whether a request may be in the remote queue of master i: the home, or an earlier
// home.
func (b *Backend) mayQueue(r *backend.AcquireRequest, i, home int) bool {
	return r.Queue && (i == home || b.servers.changedSince(time.Now().Add(-backend.QueueTTL)))
}

// leaveQueues removes a granted request from the remote queues that would reserve the key for it later.
// A master that has granted it has removed it already. One that has not replied yet may still grant
// it, and its grant keeps the lease when another master fails: so only its refusal counts.
func (b *Backend) leaveQueues(r *backend.AcquireRequest, v votes, home int, last *refusals) {
	last.won.Store(true)
	for i, at := range v {
		if at == nil && last.take(i) || at != nil && at.Outcome != backend.OutcomeGranted && b.mayQueue(r, i, home) {
			b.leaveQueue(r, i)
		}
	}
}

func (b *Backend) leaveQueue(r *backend.AcquireRequest, i int) {
	b.masters[i].Withdraw(backend.WithdrawRequest{Key: r.Key, ID: r.ID, Retention: r.Retention, Repeated: true})
}

// longPause is for a process in the remote queue: a try before its turn takes votes from others.
const longPause = 250 * time.Millisecond

// longestPause is that of a process that has asked its home alone.
const longestPause = 2 * time.Second

// pause returns a random time before the next try, so that processes that have taken each other's
// votes do not do so again. It is never shorter than a round.
func pause(round time.Duration) time.Duration {
	return max(round, 10*time.Millisecond+rand.N(240*time.Millisecond))
}
