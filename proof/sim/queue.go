package sim

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/testcall"
	"github.com/holdfast-go/holdfast/lockcore"
)

// waiter is one call, from before its start until it has returned.
type waiter struct {
	n        *node
	who      string
	since    time.Duration
	until    time.Duration
	terms    testcall.Call
	ctx      context.Context //nolint:containedctx // the caller's
	cancel   context.CancelFunc
	canceled atomic.Int64 // when cancel was called first, in ns of the run; 0 before
	behind   string       // a call that came later and got the key first; MaxWaiting must then have refused this one
}

// wait records a call that is about to begin. returned ends that.
func (o *oracle) wait(k *keyState, wt *waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	wt.since, wt.until = o.now(), 1<<62
	if wt.terms.Wait != lockcore.Forever {
		wt.until = wt.since + max(wt.terms.Wait, 0)
	}
	k.waiters[wt] = struct{}{}
}

func (o *oracle) noWaiter(k *keyState, wt *waiter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(k.waiters, wt)
}

func (o *oracle) whoWaits() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var s []string
	for _, k := range o.keys {
		for w := range k.waiters {
			s = append(s, fmt.Sprintf("%s since %v for %s", w.who, w.since, k.name))
		}
	}
	return strings.Join(s, ", ")
}

// startle sometimes cancels a call of n for k. It chooses any call, or the call that waits longest,
// which is the leader or the next to get the key. It cancels the call at once, or while the next
// request is under way. It is called when the wait queue moves.
func (wk *worker) startle(k *keyState) {
	if wk.rush || !wk.rng.chance(4) {
		return
	}
	oldest, o := wk.rng.chance(70), wk.w.oracle
	o.mu.Lock()
	var victim *waiter
	for wt := range k.waiters {
		if wt.n == wk.n && wt.ctx.Err() == nil && (victim == nil || oldest && wt.since < victim.since) {
			victim = wt
		}
	}
	if victim != nil {
		o.stats.Cancels++
		o.noteLocked(k, "%s is canceled", victim.who)
	}
	o.mu.Unlock()
	if victim == nil {
		return
	}
	end := func() {
		victim.canceled.CompareAndSwap(0, int64(o.now()))
		victim.cancel()
	}
	if wk.rng.chance(50) {
		end()
	} else {
		time.AfterFunc(wk.rng.between(0, 5*time.Millisecond), end)
	}
}

// fifoLocked judges that no call in the process of wt was overtaken by it. A call that began
// earlier, with equal terms, is served earlier or has ended. A call is in the wait queue as soon as
// the clock advances. A call that MaxWaiting has refused may not have returned yet.
func (o *oracle) fifoLocked(k *keyState, wt *waiter) {
	if wt.behind != "" {
		o.failLocked("turns", k, "%s, waiting since %.4f, got the key after %s, which came later", wt.who, wt.since.Seconds(), wt.behind)
	}
	for other := range k.waiters {
		if other.n == wt.n && other.since+time.Millisecond <= wt.since && other.until > o.now() && other.ctx.Err() == nil &&
			other.terms.Lease == wt.terms.Lease && other.terms.Fixed == wt.terms.Fixed {
			if other.terms.MaxWaiting > 0 {
				other.behind = wt.who
				continue
			}
			o.failLocked("turns", k, "%s, waiting since %.4f, got the key before %s, waiting since %.4f", wt.who, wt.since.Seconds(), other.who, other.since.Seconds())
		}
	}
}

// Bounds of a batch: the holds of a process under one grant.
const (
	batchMost = 512
	batchTime = 5 * time.Millisecond // after it the process hands the key to no other call
)

// batchLocked counts ten, the latest hold, in its batch. It reports whether ten was handed off;
// otherwise ten is the first hold of a new grant.
func (o *oracle) batchLocked(k *keyState, ten *hold, s seen) (handed bool) {
	last := k.last
	k.last = ten
	// The server knows the first token of a grant. Later the watchdog publishes the token of a hold
	// that runs, but never the next one.
	handed = last != nil && last.n == ten.n && ten.token == last.token+1 && s.token != ten.token
	if !handed {
		o.turnLocked(k, last, ten, s)
		k.batch, k.began = 1, o.now()
		return false
	}
	k.batch++
	o.stats.HandOffs++
	o.stats.Batch = max(o.stats.Batch, k.batch)
	if k.batch > batchMost {
		o.failLocked("turns", k, "%s is hold %d of a batch", ten.who, k.batch)
	}
	if d := o.now() - k.began; d > batchTime {
		o.failLocked("turns", k, "%s was handed %d in a batch that has lasted for %v", ten.who, ten.token, d)
	}
	return true
}

// turnLocked judges a new grant of a process that has released a hold with a valid lease. It fails
// if another process was in the wait queue before that release. It judges only without faults,
// because a process that is notified and sends no request loses its turn.
func (o *oracle) turnLocked(k *keyState, last, ten *hold, s seen) {
	if len(o.servers) > 1 || last == nil || last.n != ten.n || last.clean == 0 || !o.clear(k) {
		return
	}
	q, err := o.servers[0].Redis.SortedSet(k.name + ":q")
	if err != nil {
		return
	}
	for member, score := range q {
		locker := member[:len(member)-26]
		if locker == s.owner || int64(score) >= micros(o.start.Add(last.clean)) {
			continue
		}
		if channel := "holdfast:2:wake:" + locker; o.servers[0].Redis.PubSubNumSub(channel)[channel] > 0 {
			o.failLocked("turns", k, "%s got %d again after %d, although %s waits", ten.who, ten.token, last.token, member)
		}
	}
}
