package schedule

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// rates are the rates of schedules with them. The time between two calls is from 33 ms to 10 s, and
// not always a whole number of µs.
var rates = []backend.Rate{
	{N: 5, Per: time.Second, Burst: 1},
	{N: 3, Per: 100 * time.Millisecond, Burst: 2},
	{N: 7, Per: time.Second, Burst: 5},
	{N: 2, Per: 3 * time.Second, Burst: 3},
	{N: 2, Per: 20 * time.Second, Burst: 1},
}

const mostSilent = 5_000_000 // µs: for how long a process that is dead or silent delays those behind it

// withCost returns the rate of the schedule with a cost.
func (w *world) withCost(costs ...int) backend.Rate {
	r := w.rated.rate
	r.Cost = pick(w, costs)
	return r
}

// spend is Locker.Spend, which repeats the command for a second, until a reply arrives.
func (p *process) spend() {
	w, began := p.w, p.w.now
	c := command{op: spend, id: w.id('S'), locker: p.locker, share: backend.Share{Rate: w.withCost(1, 4)}}
	var on func(*reply)
	on = func(r *reply) {
		if r == nil && w.now < began+callTimeout {
			w.send(p, c, on)
		}
	}
	w.send(p, c, on)
}

// setClock sets the server's clock back, or forward to the time of the processes.
func (w *world) setClock() {
	by := -w.skew
	if by == 0 || w.chance(60) {
		by = -pick(w, []int64{1, 300_000, 5e6, 3600e6})
	}
	w.trace("the server's clock is set by %v", micros(by))
	w.p.server.Keys(w.server()) // what has expired by now does not come back
	w.judge.key.Expire(w.server())
	w.skew += by
	w.invariants.off = true
	w.rated.clockSet(w.now, by)
}

// rated judges calls with a rate by what the server grants, whether the replies arrive or not. Its
// times are those of the processes, whose clock nobody sets. It does not use the rules. All calls of
// a schedule have the same rate, with several costs.
//
//   - rate: with a cost of 1, at most N+Burst-1 calls are granted in any Per. The cost of a call
//     counts until the next call, so of the last one only as much as fits into the bucket counts,
//     and a Spend counts for the calls behind it. If the clock was set forward within the Per, Burst
//     more calls may begin.
//   - order: a call is granted before no live process that has waited for longer, by the server's
//     clock, and with others of its process only if no live process waits.
//   - idle: while the rate and the key allow a call and no live process is before it, it is refused
//     for at most 5 s, and for each process before it that is dead or silent 5 s more.
type rated struct {
	w    *world
	rate backend.Rate

	taken   []taken
	forward []int64 // when the clock was set forward
	wasSet  bool
	full    int64 // when the bucket is full again
	ahead   int64 // how far ahead that was when it was written

	ends    map[string]int64 // permits that the server has granted: the ends of their leases
	queue   map[string]*queued
	changed int // counts the commands after which a refused call may have to wait anew
}

// taken is a cost that the server has taken.
type taken struct {
	at      int64
	cost    int
	granted bool // to a call that begins
}

// queued is a request that may be in the queue.
type queued struct {
	locker       string
	member       string // its text in the queue, which decides between two that enter it at one time
	share        backend.Share
	first, since int64 // between these times of the server's clock it has entered the queue
	last         int64 // the server has run it
	lost         bool  // it may have left the queue, and enter it anew

	idle    int64 // since when it is refused without a reason; 0: it is not
	silent  int   // processes before it that may delay it from then on
	changed int
}

// clockSet records that the server's clock was set. If it was set back, the bucket is full at most
// as late after the next command that reads it as when it was last written.
func (v *rated) clockSet(now, by int64) {
	v.wasSet = true
	v.full -= by
	if v.changed++; by > 0 {
		v.forward = append(v.forward, now)
		for _, q := range v.queue {
			q.lost = true // its process seems silent
		}
	}
}

// deaf records that a process no longer listens: its request may be removed.
func (v *rated) deaf(locker string) {
	for _, q := range v.queue {
		q.lost = q.lost || q.locker == locker
	}
}

// ran judges a command that the server has run.
func (v *rated) ran(now int64, c *command, value any) {
	if v.wasSet && (c.op == spend || c.op == acquire && c.share.Rate.N > 0) {
		v.full = min(v.full, now+v.ahead)
	}
	if c.op == rotate {
		at := v.w.server()
		v.changed++
		if reply, _ := value.(backend.ReleaseReply); reply.Next.Outcome == backend.OutcomeBusy && v.queue[c.next] == nil {
			v.queue[c.next] = &queued{locker: c.locker, member: c.locker + c.next, first: at, since: at, last: now, lost: true} // unless it is a repeat
		}
		return
	}
	switch reply := value.(type) {
	case backend.AcquireReply:
		v.acquired(now, c, &reply)
		return
	case backend.Verdict:
		if end, ok := v.ends[c.id]; ok && reply == backend.VerdictKept {
			v.ends[c.id] = max(end, now+c.lease)
		}
		return
	}
	switch c.op {
	case spend:
		v.take(now, taken{now, c.share.Rate.Cost, false})
	case withdraw, release:
		delete(v.queue, c.id)
		delete(v.ends, c.id)
		v.changed++
	case park, unpark, interim:
	default:
		v.changed++
	}
}

func (v *rated) acquired(now int64, c *command, reply *backend.AcquireReply) {
	q := v.queue[c.id]
	switch reply.Outcome {
	case backend.OutcomeBusy:
		if c.queue {
			v.enter(now, c)
		}
		if c.share.Rate.N > 0 && c.queue {
			v.refused(now, c.id)
		}
		return
	case backend.OutcomeAdmitted:
		for range reply.Calls {
			v.grant(now, c.share.Rate)
		}
	case backend.OutcomeGranted:
		end, again := v.ends[c.id]
		again = again && (now < end || v.wasSet)
		switch {
		case c.share.Rate.N == 0:
		case !again:
			v.grant(now, c.share.Rate)
		case v.wasSet: // the first grant may have expired on the server
			v.fill(now, c.share.Rate.Cost)
		}
		v.ends[c.id] = max(end, now+c.lease)
		if again {
			delete(v.queue, c.id)
			return
		}
	default:
		return
	}
	v.changed++
	if c.share.Rate.N > 0 {
		v.inTurn(now, c, q, reply.Calls)
	}
	delete(v.queue, c.id)
}

// enter records that a request may be in the queue.
func (v *rated) enter(now int64, c *command) {
	q, at := v.queue[c.id], v.w.server()
	switch {
	case q == nil:
		q = &queued{locker: c.locker, member: c.locker + c.share.Text(c.id), share: c.share, first: at, since: at, last: now, lost: !v.w.listens(c.locker)}
		v.queue[c.id] = q
	case q.lost || now-q.last > mostSilent:
		q.first, q.since, q.lost = min(q.first, at), max(q.since, at), !v.w.listens(c.locker)
	}
	for _, other := range v.queue {
		if other.idle > 0 && q.maybeBefore(other) {
			other.idle = now // the process before it is not silent
		}
	}
}

// maybeBefore reports whether q may be before o in the queue.
func (q *queued) maybeBefore(o *queued) bool {
	return q.first < o.since || q.first == o.since && q.member < o.member
}

// live reports whether the process of a request listens, and has sent it within 5 s.
func (v *rated) live(now int64, q *queued) bool {
	return v.w.listens(q.locker) && now-q.last <= mostSilent
}

// inTurn judges whether a call was granted in turn. q is nil if it did not wait.
func (v *rated) inTurn(now int64, c *command, q *queued, calls int) {
	first := v.w.server()
	if q != nil {
		first = q.first
	}
	for id, other := range v.queue {
		if id == c.id || other.lost || !v.live(now, other) {
			continue
		}
		if other.since < first {
			fail("order", "%s is granted before %s, which has waited for %v", c.id, id, micros(v.w.server()-other.since))
		}
		if calls > 1 && other.locker != c.locker {
			fail("order", "%d calls of %s are granted, and %s waits", calls, c.id, id)
		}
	}
}

// turn records the turn of a request: if it has no rate, it is not in the queue any more.
func (v *rated) turn(id string) {
	if q := v.queue[id]; q != nil && q.share.Rate.N == 0 {
		delete(v.queue, id)
		v.changed++
	}
}

func (v *rated) grant(now int64, r backend.Rate) {
	v.take(now, taken{now, r.Cost, true})
	costs, calls, more := min(r.Cost, r.Burst), 0, 0
	for i := len(v.taken) - 1; i >= 0 && now-v.taken[i].at < r.Per.Microseconds(); i-- {
		t := v.taken[i]
		for len(v.forward) > more && v.forward[len(v.forward)-1-more] >= t.at {
			more++
		}
		if t.granted {
			calls++
		}
		if i < len(v.taken)-1 {
			costs += t.cost
		}
		if most := r.N + r.Burst - 1 + more*r.Burst; calls > most || more == 0 && costs > most {
			fail("rate", "%d calls with a cost of %d are granted within %v, want at most %d", calls, costs, micros(now-t.at), most)
		}
	}
}

func (v *rated) take(now int64, t taken) {
	v.taken = append(v.taken, t)
	v.fill(now, t.cost)
}

// fill records when the bucket is full again after a cost.
func (v *rated) fill(now int64, cost int) {
	per := float64(v.rate.Per.Microseconds()) / float64(v.rate.N)
	v.full = max(v.full, now) + int64(math.Ceil(float64(cost)*per))
	v.ahead = v.full - now
}

// refused judges a refusal.
func (v *rated) refused(now int64, id string) {
	q := v.queue[id]
	last := q.last
	if q.last = now; !v.mayBegin(now, q) {
		q.idle = 0
		return
	}
	switch {
	case q.idle == 0 || q.changed != v.changed || now-last > mostSilent:
		q.idle, q.silent, q.changed = now, 0, v.changed
		for _, other := range v.queue {
			if other.maybeBefore(q) {
				q.silent++
			}
		}
	case now-q.idle <= mostSilent:
	case q.silent == 0:
		fail("idle", "%s is refused since %v, although it may begin", id, micros(now-q.idle))
	default:
		q.silent--
		q.idle = now
	}
}

// mayBegin reports whether the rate and the key allow a request that waits, and no live process is
// before it.
func (v *rated) mayBegin(now int64, q *queued) bool {
	r := q.share.Rate
	per := float64(r.Per.Microseconds()) / float64(r.N)
	if v.full-int64(math.Floor(float64(r.Burst-min(r.Cost, r.Burst))*per)) > now || q.lost || !v.live(now, q) {
		return false
	}
	for _, other := range v.queue {
		if other.maybeBefore(q) && v.live(now, other) {
			return false
		}
	}
	switch s := v.w.look(); s.State {
	case backend.StateFree, backend.StateAbandoned:
		return true
	case backend.StateShared:
		return q.share.Throttled() || !s.Revoked && s.Weights+q.share.Weight <= q.share.Limit
	default:
		return false
	}
}
