package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

// longWait is how long a nested call waits for its sibling before Waiting is emitted. A long wait
// often means that a ctx was not passed on.
const longWait = 2 * time.Second

// nestedWaiter is a nested call that waits until another run inside the same entry has returned.
// The goroutine that removes a waiter from its queue, under grant.mu, decides the outcome and sends
// exactly one turn. A call that removes itself receives no turn.
type nestedWaiter struct {
	n     *nested
	start time.Time
	turn  chan bool // capacity 1; true: n is a run now, false: n can no longer enter the hold

	// Guarded by grant.mu.
	at         *entry // the entry whose queue has the waiter, or nil
	prev, next *nestedWaiter
	seq        int32 // order of arrival in the hold; it may wrap
}

// nestedQueue is a FIFO queue.
type nestedQueue struct {
	first, last *nestedWaiter
	n           int32
}

func (q *nestedQueue) empty() bool { return q == nil || q.n == 0 }

// insert inserts s after p, or at the front if p is nil.
func (q *nestedQueue) insert(p, s *nestedWaiter) {
	s.prev = p
	if p != nil {
		s.next, p.next = p.next, s
	} else {
		s.next, q.first = q.first, s
	}
	if s.next != nil {
		s.next.prev = s
	} else {
		q.last = s
	}
	q.n++
}

func (q *nestedQueue) remove(s *nestedWaiter) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		q.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		q.last = s.prev
	}
	s.prev, s.next, s.at = nil, nil, nil
	q.n--
}

// merge moves all waiters of o into q, the queue of at, and keeps the order of arrival.
func (q *nestedQueue) merge(o *nestedQueue, at *entry) {
	p := (*nestedWaiter)(nil) // the last waiter of q that is known to precede s
	for s := o.first; s != nil; s = o.first {
		o.remove(s)
		for {
			next := q.first
			if p != nil {
				next = p.next
			}
			if next == nil || next.seq-s.seq > 0 {
				break
			}
			p = next
		}
		s.at = at
		q.insert(p, s)
	}
}

// takeAll removes all waiters from q and returns them as a list.
func (q *nestedQueue) takeAll() *nestedWaiter {
	if q.empty() {
		return nil
	}
	first := q.first
	for s := first; s != nil; s = s.next {
		s.at = nil
	}
	*q = nestedQueue{}
	return first
}

// before inserts the list s before the list o. s must not be empty.
func (s *nestedWaiter) before(o *nestedWaiter) *nestedWaiter {
	last := s
	for last.next != nil {
		last = last.next
	}
	last.next = o
	return s
}

// rejectAll sends each waiter of a list the turn false, which means that it cannot enter the hold.
func (s *nestedWaiter) rejectAll() {
	for s != nil {
		next := s.next // before the send, because s then belongs to its call
		s.next = nil
		s.turn <- false
		s = next
	}
}

// await waits until n is a run inside the nearest open entry of e. If entered is false and err is
// nil, the hold is not valid or no entry on the path is open. Then the call, which began at start,
// continues without the hold.
func (e *entry) await(ctx context.Context, wait time.Duration, n *nested) (entered bool, start time.Time, err error) {
	h, l := e.of, e.of.grant.l
	start = time.Now()
	if ctx.Err() != nil {
		return false, start, errtext.Wrap(ErrNotRun, context.Cause(ctx))
	}
	if !l.startCall() {
		return false, start, ErrClosed
	}
	defer l.endCall()
	s := &nestedWaiter{n: n, start: start, turn: make(chan bool, 1)}
	h.grant.mu.Lock()
	at := e.openLocked()
	switch {
	case at == nil:
		h.grant.mu.Unlock()
		return false, start, nil
	case at.child == nil: // the child has returned in the meantime
		at.openChildLocked(n)
		h.grant.mu.Unlock()
		return true, start, nil
	case wait == NoWait:
		queue := 0
		if at.waiters != nil {
			queue = int(at.waiters.n)
		}
		h.grant.mu.Unlock()
		return false, start, h.siblingBusy(start, queue)
	}
	if at.waiters == nil {
		at.waiters = new(nestedQueue)
	}
	h.waited++
	s.seq, s.at = h.waited, at
	at.waiters.insert(at.waiters.last, s)
	h.grant.mu.Unlock()
	entered, err = s.wait(ctx, wait)
	return entered, start, err
}

func (s *nestedWaiter) wait(ctx context.Context, wait time.Duration) (entered bool, err error) {
	h := s.n.of
	settled := false
	defer func() {
		if !settled { // the Observer panicked: the call must not stay in the queue
			s.giveUp()
		}
	}()
	var timeout, long <-chan time.Time
	if wait != Forever {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		timeout = timer.C
	}
	if h.events != nil && wait > longWait {
		timer := time.NewTimer(longWait)
		defer timer.Stop()
		long = timer.C
	}
	for !settled {
		select {
		case entered = <-s.turn:
			settled = true
			if entered && ctx.Err() != nil { // the turn and the end of ctx came together: the end of ctx wins
				_ = s.n.Release(ctx)
				entered, err = false, errtext.Wrap(ErrNotRun, context.Cause(ctx))
			}
		case <-timeout:
			settled = true
			queue, left := s.leave()
			if left {
				err = h.siblingBusy(s.start, queue)
			} else {
				entered = <-s.turn // the turn was sent before the timeout
			}
		case <-long:
			if queue, waits := s.queue(); waits {
				b := h.siblingBusy(s.start, queue)
				h.emit(event.Waiting{Holder: b.Holder, Remaining: b.Remaining, Queue: queue, Nested: true})
			}
		case <-ctx.Done():
			settled = true
			queue := s.giveUp()
			if err = errtext.Wrap(ErrNotRun, context.Cause(ctx)); h.valid() {
				err = errtext.Wrap(h.siblingBusy(s.start, queue), context.Cause(ctx))
			}
		case <-h.grant.l.closing:
			settled = true
			s.giveUp()
			err = ErrClosed
		}
	}
	return entered, err
}

// leave removes s from its queue. left is false if s was no longer in a queue. Then its turn has
// been decided and is being sent.
func (s *nestedWaiter) leave() (queue int, left bool) {
	mu := &s.n.of.grant.mu
	mu.Lock()
	defer mu.Unlock()
	if s.at == nil {
		return 0, false
	}
	q := s.at.waiters
	queue = int(q.n)
	q.remove(s)
	return queue, true
}

// giveUp is leave for a call that cannot use its turn any more. If the call has already entered,
// its run ends at once, and the next waiter enters.
func (s *nestedWaiter) giveUp() (queue int) {
	queue, left := s.leave()
	if !left && <-s.turn {
		_ = s.n.Release(s.n.callCtx)
	}
	return queue
}

// queue returns how many calls wait in the queue of s.
func (s *nestedWaiter) queue() (n int, waits bool) {
	mu := &s.n.of.grant.mu
	mu.Lock()
	defer mu.Unlock()
	if s.at == nil {
		return 0, false
	}
	return int(s.at.waiters.n), true
}

// siblingBusy returns the error of a nested call that is refused because another run of the same
// hold is open.
func (h *hold) siblingBusy(start time.Time, queue int) *BusyError {
	g := h.grant
	g.mu.Lock()
	left := g.lease - elapsed(g.sent)
	g.mu.Unlock()
	return &BusyError{
		Key: g.queue.key.Name, Holder: holderOf(g.l.id, g.l.holderText(h.callCtx)), HeldFor: time.Since(h.grantedAt()), Remaining: max(left, 0),
		Queue: queue, Waited: time.Since(start), Local: true, Nested: true,
	}
}

// shareText returns a description of s for error texts.
func shareText(s backend.Share) string {
	switch s.Limit {
	case 0:
		return "the key alone"
	case backend.Unlimited:
		return "a share without a limit"
	}
	return fmt.Sprintf("weight %d of limit %d", s.Weight, s.Limit)
}

// reenter enters the hold of key that ctx carries, or waits until it can enter. If it returns
// neither a lease nor an error, ctx carries no hold that the call can enter. Then start is the time
// at which the call began to wait.
func (l *Locker) reenter(ctx context.Context, e *entry, limit Limit, t *Terms) (le *Lease, start time.Time, err error) {
	if e.of.grant.needsMore(limit.share()) && e.holds() { //planted:upgrade-refused
		return nil, start, fmt.Errorf("%w: %q: ctx holds %s, the call requests %s", ErrUpgrade, e.of.grant.queue.key.Name, shareText(e.of.grant.share.Share), shareText(limit.share()))
	}
	n := newNested(ctx, e.of)
	if e.enter(n) {
		return &n.Lease, start, nil
	}
	if !e.of.valid() { // otherwise a late renewal could keep the hold, and the call would wait for its own hold
		e.of.grant.expire()
	}
	entered, start, err := e.await(ctx, cmp.Or(t.Wait, l.terms.Wait), n)
	if entered {
		return &n.Lease, start, nil
	}
	return nil, start, err
}
