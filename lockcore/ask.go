package lockcore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"
)

const (
	waitCap    = 2 * time.Second // longest sleep of a waiter: what a dropped message costs
	queueTTL   = time.Minute     // of a queue that nobody refreshes
	tokenBlock = 1
	minTries   = 3 // sends before a Redis that refuses at once counts as away
)

// ask is one try to get a key, named by the hold-id that it will have. It is the only contender of its call; whatever
// becomes of the call, its end is sent: granted asks become holds, all others that Redis may know of leave.
//
// The races: a wake-up may come at any time, so woken is emptied before each send, never after; an answer without a
// grant may still be followed by one if a send got no answer, so such an ask is undone in the background; a grant that
// comes too late, or to a caller who has gone, is undone too and never runs.
type ask struct {
	l     *Locker
	kind  Kind
	key   string
	terms Terms
	keep  time.Duration
	mode  string
	tag   string
	check func([]byte) error

	keys      [2]string
	ctx       context.Context //nolint:containedctx // of the Observer's Start
	who       string
	id        string
	start     time.Time
	queued    bool          // Redis has it in the queue
	repeated  bool          // sent more than once, or without an answer
	unsettled bool          // a send got no answer since the last one that did
	woken     chan struct{} // room for one hint; nil while not registered
	futile    int           // wake-ups in a row that found the key busy
	busy      *BusyError    // the last busy answer, nil before
	busyAt    time.Time     // and when it came
	err       error         // of the last send
	failed    int           // sends without an answer in a row
	maxQueue  int
}

// run is the life of an ask, from the first send to a hold, a record or an error.
func (a *ask) run(ctx context.Context) (h *hold, rec *Record, err error) {
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotRun, context.Cause(ctx))
	}
	if !a.l.enter() {
		return nil, nil, ErrClosed
	}
	defer a.l.exit() // after undo, so that Close waits for that too
	a.start, a.ctx = time.Now(), ctx
	if a.l.obs != nil {
		a.ctx = a.l.obs.Start(ctx, Attempt{Kind: a.kind, Name: a.terms.Name, Key: a.key})
	}
	a.keys, a.id, a.who = redisKeys(a.l.prefix, a.kind, a.key), rand.Text(), a.l.who(a.ctx)
	if a.terms.Wait != NoWait && a.l.wake.ready() {
		a.register()
	}
	defer func() {
		if a.woken != nil {
			a.l.wake.unregister(a.id)
		}
		if h == nil {
			a.undo()
		}
		a.report(h, rec, err)
	}()
	return a.contend()
}

// contend asks, sleeps and asks again. It returns when there is an outcome.
func (a *ask) contend() (*hold, *Record, error) {
	for tries := 1; ; tries++ {
		if a.woken != nil {
			select {
			case <-a.woken:
			default:
			}
		}
		sent := time.Now()
		reply, err := a.send()
		var pause time.Duration
		switch {
		case err != nil && (permanent(err) || tries >= minTries && a.waited() >= a.patience()):
			return nil, nil, a.give(unavailable(err))
		case err != nil:
			pause = time.Duration(min(20<<min(tries, 5), 500)) * time.Millisecond
		default:
			h, rec, again, err := a.read(sent, reply)
			if again < 0 {
				return h, rec, err
			}
			pause = again
		}
		if pause == 0 { // over, or granted too late: another ask at once
			if a.waited() >= a.patience() {
				return nil, nil, a.give(nil)
			}
			continue
		}
		if err := a.sleep(pause, err != nil); err != nil {
			return nil, nil, err
		}
	}
}

func (a *ask) send() ([]any, error) {
	l := a.l
	queue := a.woken != nil
	ctx := a.ctx
	if a.patience() > 0 && a.terms.Wait != Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(a.patience()-a.waited(), callTimeout/2))
		defer cancel()
	}
	reply, again, err := l.conn.run(ctx, l.conn.calls, acquireScript, a.keys[:],
		a.id, l.id, micros(a.terms.Lease), flag(queue), a.who, tokenBlock,
		millis(a.terms.Lease+max(a.keep, abandonedTTL)), a.tag, a.mode, millis(queueTTL))
	a.repeated = a.repeated || again
	a.unsettled = again && err != nil
	a.err, a.failed = err, a.failed+1
	if err == nil {
		a.failed = 0
	}
	return reply, err
}

// sleep waits for a hint, for d or for the end of the call, which it returns as an error. deaf: hints do not count,
// Redis did not answer.
func (a *ask) sleep(d time.Duration, deaf bool) error {
	woken := a.woken
	if deaf {
		woken = nil
	} else if a.futile > 3 { // messages are only hints: forged ones must not make us ask at any rate
		if err := a.sleep(min(time.Millisecond<<min(a.futile, 8), d), true); err != nil {
			return err
		}
	}
	end := a.patience() - a.waited()
	timer := time.NewTimer(max(min(d, end), 0))
	defer timer.Stop()
	select {
	case <-woken:
		a.futile++
	case <-timer.C:
		if !deaf {
			a.futile = 0
		}
		if d >= end && !deaf {
			return a.give(nil)
		}
	case <-a.ctx.Done():
		return a.gone()
	case <-a.l.closing:
		return ErrClosed
	}
	return nil
}

func (a *ask) waited() time.Duration { return time.Since(a.start) }

// patience is how long the call may take in all, for another holder or for Redis.
func (a *ask) patience() time.Duration {
	if a.terms.Wait == NoWait {
		return callTimeout
	}
	if a.terms.Wait == Forever {
		return math.MaxInt64
	}
	return a.terms.Wait
}

// give is the error when the time of the call is up: what Redis said last, or who has the key.
func (a *ask) give(err error) error {
	if err == nil && a.busy != nil {
		b := *a.busy
		since := time.Since(a.busyAt)
		b.Waited, b.HeldFor, b.Remaining = a.waited(), b.HeldFor+since, max(b.Remaining-since, 0)
		err = &b
	}
	if err == nil {
		err = unavailable(a.err)
	}
	if a.ctx.Err() != nil {
		err = errors.Join(err, context.Cause(a.ctx))
	}
	return err
}

// gone is the error when ctx ended first: what is known and why it ended.
func (a *ask) gone() error {
	switch {
	case a.busy != nil && a.failed < 2: // one may have been cut short by the end of ctx itself
		return a.give(nil)
	case a.err != nil:
		return a.give(unavailable(a.err))
	}
	return fmt.Errorf("%w: %w", ErrNotRun, context.Cause(a.ctx))
}

func (a *ask) register() {
	if a.woken == nil {
		a.woken = make(chan struct{}, 1)
	}
	a.l.wake.register(a.id, a.woken)
}

// renew undoes an ask that was granted too late and goes on as another, at the end of the line.
func (a *ask) renew() {
	a.unsettled = true
	a.undo()
	old := a.id
	a.id, a.queued, a.repeated, a.unsettled = rand.Text(), false, false, false
	if a.woken != nil {
		a.l.wake.unregister(old)
		a.register()
	}
}

// undo takes back what Redis may know of an ask that will not run: a place in line, a turn, a grant. Nobody waits for it.
func (a *ask) undo() {
	if !a.queued && !a.unsettled && !a.repeated {
		return
	}
	l, id, keys, keep, repeated := a.l, a.id, a.keys, a.keep, a.repeated
	l.inBackground(time.Now().Add(a.terms.Lease), func(ctx context.Context) error {
		_, again, err := l.conn.run(ctx, l.conn.keep, leaveScript, keys[:],
			id, l.id, millis(keep), flag(repeated), micros(claimWindow), l.channel(""), flag(l.conn.single))
		repeated = repeated || again
		return err
	}, nil)
}

// report is the first event after the outcome: the last one, or Granted.
func (a *ask) report(h *hold, rec *Record, err error) {
	if h != nil && !h.terms.NoRenew {
		a.l.dog.add(h)
	}
	if a.l.obs == nil {
		return
	}
	waited, contended := a.waited(), a.busy != nil
	switch {
	case h != nil:
		h.tell(Granted{
			Waited: waited, Contended: contended, Queue: a.maxQueue, Token: h.token, Attempt: h.attempt, Abandoned: h.abandoned,
		})
	case rec != nil:
		a.l.obs.Event(a.ctx, Replayed{Waited: waited, Contended: contended, Queue: a.maxQueue, Attempt: rec.Attempt})
	default:
		a.l.obs.Event(a.ctx, Refused{Err: err, Waited: waited, Contended: contended, Queue: a.maxQueue})
	}
}
