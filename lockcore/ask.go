package lockcore

import (
	"crypto/rand"
	rnd "math/rand/v2"
	"time"
)

const (
	waitCap  = 2 * time.Second       // longest sleep of a waiter: what a dropped message costs
	queueTTL = time.Minute           // of a queue that no process refreshes
	minPause = 10 * time.Millisecond // least pause before a request that no message has caused
	minTries = 3                     // sends in a row without an answer before Redis counts as unavailable

	// What a once key has to hear is tried for so much longer than the lease: else a run that never was, or has failed, counts as abandoned.
	afterLease = time.Hour
)

// ask is one try of a line to get its key from Redis, named by the hold-id that it will have. It belongs to whoever has the line's baton and
// is passed on with it, so that the place in the server's queue stays. Its end is always sent: granted asks become grants, all
// others that Redis may know of leave.
//
// The races: a wake-up may come at any time, so woken is emptied before each send, never after; an answer without a
// grant may still be followed by one if a send got no answer, so such an ask is undone in the background; a grant that
// comes too late, or when nobody wants it any more, is undone too and never runs. Where the line goes on, the undo is answered before
// it asks anew: else it would find its own dead grant and take that for a run that was abandoned.
type ask struct {
	l         *Locker
	line      *line
	id        string
	by        *call         // who has asked last
	queued    bool          // Redis has it in the queue
	repeated  bool          // sent more than once, or without an answer
	unsettled bool          // a send got no answer since the last one that did, or it was granted and has not run
	woken     chan struct{} // room for one hint; nil while not registered
	poked     chan struct{} // the same, for calls of this process
	futile    int           // wake-ups in a row that found the key busy
	renamed   bool          // Redis may have heard of another call as the one that asks
	next      time.Time     // when to ask again
	deaf      bool          // and not before: Redis did not answer
}

func newAsk(c *call) *ask {
	a := &c.own
	if a.l != nil { // it has been used
		a = new(ask)
	}
	*a = ask{l: c.l, line: c.line, id: rand.Text(), by: c}
	if c.terms.Wait != NoWait && c.l.wake.ready() {
		a.register()
	}
	return a
}

// adopt makes an ask that was passed on speak for c.
func (a *ask) adopt(c *call) {
	stale := a.unsettled || a.repeated // Redis may grant it as it was asked for before
	if !sameTerms(a.by, c) {
		if stale {
			a.renew()
		}
		a.next, a.deaf = time.Time{}, false
	} else if stale && a.by != c {
		a.renamed = true
	}
	a.by = c
}

func sameTerms(a, b *call) bool {
	return a.terms.Lease == b.terms.Lease && a.keep == b.keep && a.mode == b.mode && a.tag == b.tag
}

func (a *ask) register() {
	if a.woken == nil {
		a.woken = make(chan struct{}, 1)
	}
	a.open()
	a.l.wake.register(a.id, a.woken)
}

// open lets calls of this process poke the ask.
func (a *ask) open() {
	if a.poked == nil {
		a.poked = make(chan struct{}, 1)
	}
}

func (a *ask) send(c *call) ([]any, error) {
	l, limit, start := a.l, c.bound(), time.Now()
	if err := l.cleanups.before(c.ctx, a.line.keys[0], !a.known(), min(limit, callTimeout)); err != nil {
		return nil, err
	}
	limit -= time.Since(start) // both in the time of one; the next try has all of it
	a.clear()                  //planted:hints-cleared
	args := &acquireArgs{
		ctx: limited{Context: c.ctx, limit: limit}, id: a.id, who: l.who(c.ctx), lease: micros(c.terms.Lease), keep: millis(c.terms.Lease + max(c.keep, abandonedTTL)),
	}
	reply, again, err := l.conn.send(&args.ctx, l.conn.calls, acquireScript, args.fill(a, c))
	a.sent(again, err) //planted:reply-noted
	return reply, err
}

// bound is how long c waits for one answer.
func (c *call) bound() time.Duration {
	if c.terms.Wait == Forever {
		return callTimeout
	}
	return max(c.patience()-c.waited(), callTimeout/2)
}

// acquireArgs are the ctx and the arguments of one send in one piece of memory: the command has pointers to them, for as long as it is under way.
type acquireArgs struct {
	ctx         limited
	id, who     string
	lease, keep int64
	list        [14]any
}

func (r *acquireArgs) fill(a *ask, c *call) []any {
	ln := a.line
	queue := &no
	if a.woken != nil {
		queue = &yes
	}
	r.list = [14]any{
		2: 2, 3: &ln.keys[0], 4: &ln.keys[1], 5: &r.id, 6: &a.l.id, 7: &r.lease, 8: queue, 9: &r.who, 10: &r.keep,
		11: &c.tag, 12: &c.mode, 13: &queueKeep,
	}
	return r.list[:]
}

// What arguments point to; never written.
var (
	no, yes   = flag(false), flag(true)
	queueKeep = millis(queueTTL)
	window    = micros(claimWindow)
)

// clear forgets hints that came before what is sent now.
func (a *ask) clear() {
	select {
	case <-a.woken:
	default:
	}
	select {
	case <-a.poked:
	default:
	}
}

// sent notes how a send ended.
func (a *ask) sent(again bool, err error) {
	a.repeated = a.repeated || again
	a.unsettled = again && err != nil
	a.next, a.deaf = time.Time{}, false
	if err == nil {
		a.queued = a.queued || a.woken != nil
	}
}

// retry says when to ask again after a send without an answer.
func (a *ask) retry(tries int) {
	a.next, a.deaf = time.Now().Add(time.Duration(min(20<<min(tries, 5), 500))*time.Millisecond), true
}

// lineUp says when to ask again after the answer busy: at the end of what the holder has, for no message tells of a
// death, and never later than waitCap, for messages get lost.
func (a *ask) lineUp(b *BusyError) {
	if a.woken == nil {
		a.register() // the subscription starts, and wakes us when it stands: then we ask again and are in line
	} else {
		a.l.wake.start() // it may have ended
	}
	jitter := time.Duration(10+rnd.IntN(40)) * time.Millisecond
	a.next = time.Now().Add(max(minPause, min(b.Remaining+jitter, waitCap-jitter))) //planted:request-again-at
}

// renew goes on as a new ask, at the end of the server's queue, where this one was granted too late, or may have been to another. A new one is
// not sent before this one is undone, so that there is never more than one to undo.
func (a *ask) renew() {
	old := a.id
	a.l.withdraw(a.line, old, a.by.keep, true, true)
	a.id, a.queued, a.repeated, a.unsettled, a.renamed = rand.Text(), false, false, false, false
	if a.woken != nil {
		a.l.wake.unregister(old)
		a.register()
	}
}

// close ends an ask that was granted or needs no undoing.
func (a *ask) close() {
	if a.woken != nil {
		a.l.wake.unregister(a.id)
	}
}

// end ends an ask that no call wants any more. No message is lost meanwhile: the withdrawal enters the queue before the
// ask leaves the table of waiters, and an earlier hint is passed on.
func (a *ask) end() {
	a.undo()
	a.close()
	select {
	case <-a.woken:
		a.l.cleanups.hurry(a.id)
	default:
	}
}

// known reports whether Redis may know the ask.
func (a *ask) known() bool { return a.queued || a.unsettled || a.repeated }

// undo withdraws from Redis what it may have of an ask that will not run: its queue entry, reservation or grant. It
// does not wait.
func (a *ask) undo() {
	if a.queued || a.unsettled || a.repeated { //planted:undo-of-request
		a.l.withdraw(a.line, a.id, a.by.keep, a.unsettled || a.repeated, a.repeated)
	}
}

// withdraw removes from Redis a request, or a grant under which no call ran. granted: Redis may have granted the
// request.
func (l *Locker) withdraw(ln *line, id string, keep time.Duration, granted, repeated bool) {
	l.cleanups.add(&cleanup{keys: ln.keys, id: id, keep: keep, first: granted, repeated: repeated})
}

// insist is how long Redis is told that nothing happened, if left is what remains of the lease.
func (ln *line) insist(left time.Duration) time.Duration {
	if ln.kind == KindOnce {
		return left + afterLease
	}
	return left
}
