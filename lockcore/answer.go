package lockcore

import (
	"fmt"
	rnd "math/rand/v2"
	"time"
)

// Answers of acquire.lua.
const (
	answerBusy = iota
	answerGranted
	answerDone
	answerMismatch
	answerAbandoned
	answerOver
)

// read turns an answer into an outcome (again < 0), or says how long to sleep at most before the next ask.
func (a *ask) read(sent time.Time, reply []any) (h *hold, rec *Record, again time.Duration, err error) {
	status, err := number(reply, 0)
	if err != nil {
		return nil, nil, -1, unavailable(err)
	}
	switch status {
	case answerGranted:
		return a.granted(sent, reply)
	case answerDone:
		rec, err = a.done(reply)
		return nil, rec, -1, err
	case answerMismatch:
		done, _ := number(reply, 1)
		return nil, nil, -1, &MismatchError{Key: a.key, Done: done == 1}
	case answerAbandoned:
		age, _ := number(reply, 2)
		n, _ := number(reply, 3)
		return nil, nil, -1, &AbandonedError{Key: a.key, Holder: parseHolder(text(reply, 1)), HeldFor: micro(age), Attempt: int(n)}
	case answerOver: // it was granted, ran out before we heard of it, and is nobody's now
		a.renew()
		return nil, nil, 0, nil
	default:
		return a.isBusy(reply)
	}
}

func (a *ask) granted(sent time.Time, reply []any) (*hold, *Record, time.Duration, error) {
	token, err := number(reply, 1)
	if err != nil {
		a.unsettled = true
		return nil, nil, -1, unavailable(err)
	}
	n, _ := number(reply, 2)
	abandoned, _ := number(reply, 3)
	a.unsettled = true // until it runs, it must be undone
	switch {
	case a.ctx.Err() != nil:
		return nil, nil, -1, a.gone()
	case elapsed(sent) >= usable(a.terms.Lease):
		a.renew()
		return nil, nil, 0, nil
	}
	h := &hold{
		l: a.l, kind: a.kind, key: a.key, keys: a.keys, id: a.id, token: token, attempt: 1, abandoned: abandoned == 1,
		terms: a.terms, keep: a.keep, asked: a.ctx, repeated: a.repeated, sent: sent, lease: a.terms.Lease, index: -1,
	}
	if a.kind == KindOnce {
		h.attempt = int(n)
	}
	h.start()
	if !a.l.add(h) {
		h.leave() // before anybody knew it
		h.cancel(ErrGivenUp)
		return nil, nil, -1, ErrClosed
	}
	a.unsettled, a.queued = false, false
	return h, nil, -1, nil
}

func (a *ask) done(reply []any) (*Record, error) {
	a.queued = false // the script saw to that
	n, _ := number(reply, 2)
	rec := &Record{Data: []byte(text(reply, 1)), Attempt: int(n)}
	if a.check != nil {
		if err := a.check(rec.Data); err != nil {
			a.l.Report(a.ctx, BadRecord{Err: err})
			return nil, fmt.Errorf("%w: %q: %w", ErrRecord, a.key, err)
		}
	}
	return rec, nil
}

// isBusy notes who has the key and says how long to sleep: to the end of what the holder has, for no message tells of a
// death, and never longer than waitCap, for messages get lost.
func (a *ask) isBusy(reply []any) (*hold, *Record, time.Duration, error) {
	left, err := number(reply, 1)
	if err != nil {
		return nil, nil, -1, unavailable(err)
	}
	held, _ := number(reply, 2)
	queue, _ := number(reply, 4)
	first := a.busy == nil
	b := &BusyError{Key: a.key, Holder: parseHolder(text(reply, 3)), HeldFor: micro(held), Remaining: micro(left), Queue: int(queue)}
	if b.Holder == (Holder{}) && !first {
		b.Holder = a.busy.Holder // reserved for somebody: who had it last is the better answer
	}
	a.busy, a.busyAt, a.maxQueue = b, time.Now(), max(a.maxQueue, b.Queue)
	a.queued = a.queued || a.woken != nil
	if a.terms.Wait == NoWait || a.waited() >= a.terms.Wait {
		return nil, nil, -1, a.give(nil)
	}
	if first && a.l.obs != nil {
		a.l.obs.Event(a.ctx, Waiting{Holder: b.Holder, Queue: max(b.Queue, 1), Remaining: b.Remaining})
	}
	if a.woken == nil {
		a.register() // the subscription starts, and wakes us when it stands: then we ask again and are in line
	} else {
		a.l.wake.start() // it may have ended
	}
	jitter := time.Duration(10+rnd.IntN(40)) * time.Millisecond
	return nil, nil, min(b.Remaining+jitter, waitCap-jitter), nil
}

func micro(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
