package lockcore

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/internal/errtext"
)

const (
	maxRate   = 1_000_000 // of N, Burst and Cost
	minPer    = time.Millisecond
	maxPer    = 24 * time.Hour
	maxRefill = 24 * time.Hour // of Burst, and of Cost
)

// Rate bounds how often calls of a key begin, in all processes with the same Redis and prefix:
//
//	lockcore.Rate{N: 20}                               // one each 50 ms
//	lockcore.Rate{N: 19, Burst: 2}                     // at most 20 in any second
//	lockcore.Rate{N: 100, Per: time.Minute, Burst: 10} // at most 109 in any minute, 10 at once
//
// It is a bucket that holds Burst and gets N in each Per. A call takes its Cost from it. So at most
// N + Burst - 1 calls of cost 1 begin in any Per (Burst is 1 by default).
//
//   - The Rate belongs to the call. Redis stores one time for a key, and no Rate, so a call with
//     another Rate needs no setup.
//   - With Burst 1 a call that begins late delays all calls behind it. So at more than about 20 a
//     second, N-1 with Burst 2 has the same window and loses no time.
//   - The time is that of Redis. Calls begin a moment after it, when the reply has arrived.
//   - A cost is never returned, whether the call fails or not. If a reply is lost, it may be taken
//     twice: fewer calls begin, never more. If Redis loses its data, at most Burst more begin.
//   - A call with a Cost above Burst waits until the bucket is full, and then takes more than it
//     has.
type Rate struct {
	// N is how many calls of cost 1 may begin in Per: 1 to 1,000,000.
	N int
	// Per is the time for N. Default: 1 s. 1 ms to 24 h, and at least N microseconds.
	Per time.Duration
	// Burst is the size of the bucket: how many calls may begin at once. Default: 1. At most
	// 1,000,000, and at most what flows in within 24 h.
	Burst int
	// Cost is what a call takes. Default: 1. At most 1,000,000, and at most what flows in within 24 h.
	Cost int
}

// Validate reports every problem of r at once. Each message names the field, its value and the
// bound. Call it for settings that come from a file.
func (r Rate) Validate() error {
	var errs []error
	f := r.filled()
	if r.N < 1 || r.N > maxRate {
		errs = append(errs, fmt.Errorf("lockcore: Rate.N is %d, must be between 1 and %d", r.N, maxRate))
	}
	if f.Per < minPer || f.Per > maxPer {
		errs = append(errs, fmt.Errorf("lockcore: Rate.Per is %v, must be between %v and %v", r.Per, minPer, maxPer))
	} else if least := time.Duration(r.N) * time.Microsecond; f.Per < least && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("lockcore: Rate.Per is %v, must be at least %v for an N of %d", r.Per, least, r.N))
	}
	sound := len(errs) == 0
	for _, c := range []struct {
		name string
		v    int
	}{{"Burst", r.Burst}, {"Cost", r.Cost}} {
		switch {
		case c.v < 0 || c.v > maxRate:
			errs = append(errs, fmt.Errorf("lockcore: Rate.%s is %d, must be between 0 and %d", c.name, c.v, maxRate))
		case sound && float64(c.v)*float64(f.Per) > float64(maxRefill)*float64(r.N):
			errs = append(errs, fmt.Errorf("lockcore: Rate.%s is %d, must be at most %d, which flow in within %v", c.name, c.v, int(float64(maxRefill)/float64(f.Per)*float64(r.N)), maxRefill))
		}
	}
	return errtext.Join(errs...)
}

// Interval returns the time between two calls at this rate.
func (r Rate) Interval() time.Duration {
	f := r.filled()
	return time.Duration(float64(f.Cost) * float64(f.Per) / float64(max(f.N, 1)))
}

// filled returns r with its defaults.
func (r Rate) filled() backend.Rate {
	f := backend.Rate{N: r.N, Per: r.Per, Burst: max(r.Burst, 1), Cost: max(r.Cost, 1)}
	if f.Per == 0 {
		f.Per = time.Second
	}
	return f
}

// ThrottleOptions are the conditions of one [Locker.Throttle]. A zero field takes its value from
// Options.Terms or, if that is zero too, the default of [Terms].
type ThrottleOptions struct {
	// Name is the class of the key in spans and metrics, see Terms.Name.
	Name string
	// Wait bounds how long the call waits for its turn. A call whose turn is later is refused at
	// once. Default: 2 s. 1 ns to 24 h, NoWait or Forever.
	Wait time.Duration
	// MaxWaiting bounds how many calls of this Locker wait for one key, see Terms.MaxWaiting.
	MaxWaiting int
}

func (o ThrottleOptions) terms() Terms {
	return Terms{Name: o.Name, Wait: o.Wait, MaxWaiting: o.MaxWaiting}
}

// Validate reports every problem of o at once. Each message names the field, its value and the
// bound.
func (o ThrottleOptions) Validate() error { return o.terms().Validate() }

// Admission is the result of a [Locker.Throttle].
type Admission struct {
	Left  int           // cost that may be taken now without waiting, at most Rate.Burst
	Reset time.Duration // until they may take 1 more
}

// Throttle waits until the rate of key lets the call begin, and takes its cost. Nothing is held:
// there is no lease, and nothing to release. Calls of a key wait in one queue with those of
// [Locker.Acquire] and AcquireShare, and while another holder has the key alone. They do not wait
// for shares, but behind a call in the queue that does.
//
// A call whose turn is after o.Wait is refused at once with a [*BusyError] whose field Exact is set:
// its Remaining is the time until the turn. Otherwise the errors are those of Acquire, or those of
// r.Validate. A call whose ctx has the key, alone or shared, fails with [ErrNested]: it would wait for
// itself, or behind a call that waits for it. Use Limit.Rate, or another key.
func (l *Locker) Throttle(ctx context.Context, key string, r Rate, o ThrottleOptions) (Admission, error) {
	t := o.terms()
	if err := errtext.Join(checkKey(key), r.Validate(), t.check()); err != nil {
		return Admission{}, errtext.Wrap(ErrNotRun, err)
	}
	if e := entryIn(ctx, l, event.KindExclusive, key); e != nil && e.holds() {
		return Admission{}, fmt.Errorf("%w: %q: Throttle could wait in the queue behind a call that waits for the hold of ctx", ErrNested, key)
	}
	c := &call{l: l, kind: event.KindExclusive, key: key, limit: Limit{Rate: r}, terms: t, keep: freeTTL}
	c.terms.fill(&l.terms)
	_, _, err := c.run(ctx)
	if err != nil {
		return Admission{}, err
	}
	return Admission{c.admitted.rest, c.admitted.reset}, nil
}

// Spend takes r.Cost from the rate of key at once, for a cost that is known only after the call,
// such as that of an LLM's answer. Give r the N, Per and Burst of the calls. Later calls of
// [Locker.Throttle] and AcquireShare wait for it, for at most 48 h. If no reply arrives, Spend
// sends the command again, so that the cost may be taken twice. It returns ErrUnavailable if Redis
// does not reply within a second, ErrClosed, ErrUnsupported on a majority of servers, or an error
// of r.Validate.
func (l *Locker) Spend(ctx context.Context, key string, r Rate) error {
	if err := errtext.Join(checkKey(key), r.Validate()); err != nil {
		return errtext.Wrap(ErrNotRun, err)
	}
	if !l.startCall() {
		return ErrClosed
	}
	defer l.endCall()
	k := l.backend.Key(backend.KindExclusive, key)
	if err := l.backend.Spend(ctx, &k, r.filled()); err != nil {
		if end := endOf(ctx); end != nil {
			return errtext.Join(unavailable(err), end)
		}
		return unavailable(err)
	}
	return nil
}

// admitted is what a call of Throttle gets at its turn.
type admitted struct {
	rest  int
	reset time.Duration
}

// sameRate reports whether both calls are throttled by the same rate.
func sameRate(a, b *call) bool { return a.limit.N == 0 && a.limit.Rate.N > 0 && a.limit == b.limit }

// calls returns how many calls may begin with the request of c: c, and the calls behind it with the
// same rate.
func (q *keyQueue) calls(c *call) int {
	if c.limit.N != 0 || c.limit.Rate.N == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 1
	for w := q.first; w != nil && n < backend.TokensPerGrant && sameRate(w, c); w = w.next {
		n++
	}
	return n
}

// admit lets calls behind the leader begin, at most n, and passes the leadership on. The leader was
// admitted too. A call that left after the request was sent leaves its cost taken.
func (q *keyQueue) admit(leader *call, n int) {
	q.mu.Lock()
	var others []*call
	for w := q.first; w != nil && len(others) < n && sameRate(w, leader); w = q.first {
		q.removeLocked(w)
		others = append(others, w)
	}
	q.lastReply = noReply
	q.mu.Unlock()
	for _, w := range others {
		w.give(turn{result: &result{admitted: leader.admitted}})
	}
	q.passLeadership(nil, nil)
}

// turnLocked returns how long it takes until the turn of a call behind the leader, at least. ahead is
// the time in which the costs of the calls between them return to the bucket. It is 0 if the rate does
// not decide.
func (q *keyQueue) turnLocked(c *call, ahead time.Duration) time.Duration {
	if q.busy == nil || !q.busy.Exact || c.limit.Rate.N == 0 {
		return 0
	}
	full := q.busy.Remaining - time.Since(q.received) + q.rate.slack() + q.rate.refill() + ahead // when the bucket would be full
	return full - c.limit.Rate.slack()
}

// refill returns the time in which the cost of a call returns to the bucket. It is 0 without a rate.
func (r Rate) refill() time.Duration {
	if r.N == 0 {
		return 0
	}
	return r.Interval()
}

// slack returns how long before the bucket is full a call may begin. It is 0 without a rate.
func (r Rate) slack() time.Duration {
	if r.N == 0 {
		return 0
	}
	f := r.filled()
	return time.Duration(float64(f.Burst-min(f.Cost, f.Burst)) * float64(f.Per) / float64(f.N))
}

// removeLateLocked removes the calls whose turn is after the end of their wait, and returns them with
// their refusals.
func (q *keyQueue) removeLateLocked() (late []turnOf) {
	ahead := time.Duration(0)
	for c := q.first; c != nil; {
		next := c.next
		if at := q.turnLocked(c, ahead); at > 0 && c.terms.Wait != Forever && at > c.maxWait()-c.waited() {
			q.removeLocked(c)
			late = append(late, turnOf{c, turn{result: &result{err: q.tooLateLocked(c, at)}}})
		} else {
			ahead += c.limit.Rate.refill()
		}
		c = next
	}
	return late
}

// tooLateLocked returns the error of a call whose turn is in d, after the end of its wait.
func (q *keyQueue) tooLateLocked(c *call, d time.Duration) error {
	b := snapshot{lastReply: q.lastReply}.busyError(c)
	b.Remaining, b.Queue = d, b.Queue+q.queuedLocked()
	return b
}
