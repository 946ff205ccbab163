package lockcore

import (
	"math"
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

// answer is what Redis said of an ask. The zero value means: ask again at once.
type answer struct {
	g    *grant
	rec  *Record
	busy *BusyError
	tag  string // fingerprint of rec, or of who is busy
	err  error
}

// read understands a reply to an ask that c sent.
func (a *ask) read(c *call, sent time.Time, reply []any) answer {
	status, err := number(reply, 0)
	if err != nil {
		return answer{err: unavailable(err)}
	}
	switch status {
	case answerGranted:
		return a.granted(c, sent, reply)
	case answerDone:
		n, _ := number(reply, 2)
		return answer{rec: &Record{Data: []byte(text(reply, 1)), Attempt: int(n)}, tag: text(reply, 3)}
	case answerMismatch:
		done, _ := number(reply, 1)
		return answer{err: &MismatchError{Key: c.key, Done: done == 1}}
	case answerAbandoned:
		age, _ := number(reply, 2)
		n, _ := number(reply, 3)
		return answer{err: &AbandonedError{Key: c.key, Holder: parseHolder(text(reply, 1)), HeldFor: micro(age), Attempt: int(n)}}
	case answerOver: // it was granted, ran out before we heard of it, and is nobody's now
		a.renew()
		return answer{}
	}
	left, err := number(reply, 1)
	if err != nil {
		return answer{err: unavailable(err)}
	}
	held, _ := number(reply, 2)
	queue, _ := number(reply, 4)
	return answer{tag: text(reply, 5), busy: &BusyError{
		Key: c.key, Holder: parseHolder(text(reply, 3)), HeldFor: micro(held), Remaining: micro(left), Queue: int(queue),
	}}
}

// granted makes a grant of an answer that came in time. From here on the grant, not the ask, is what must be given back.
func (a *ask) granted(c *call, sent time.Time, reply []any) answer {
	a.unsettled = true // until it is a grant it must be undone
	token, err := number(reply, 1)
	if err != nil || token >= 1<<53 { // made of absurd data: Lua could not count on from there
		return answer{err: unavailable(err)}
	}
	if elapsed(sent) >= usable(c.terms.Lease) { //planted:grant-in-time
		a.renew()
		return answer{}
	}
	n, _ := number(reply, 2)
	abandoned, _ := number(reply, 3)
	g := &grant{
		l: a.l, line: a.line, id: a.id, terms: granted{c.terms.Lease, c.terms.NoRenew}, keep: c.keep, tag: c.tag, attempt: 1, repeated: a.repeated,
		since: time.Now(),
		next:  token, top: token + tokenBlock - 1, abandoned: abandoned == 1, lease: c.terms.Lease, index: -1,
		sent: sent, //planted:grant-counts-from
	}
	if a.line.kind == KindOnce {
		g.attempt = int32(min(n, math.MaxInt32))
	}
	if !a.renamed {
		g.by = c
	}
	if !a.l.add(g) {
		return answer{err: ErrClosed}
	}
	a.unsettled, a.queued, a.repeated = false, false, false
	if !g.terms.NoRenew {
		a.l.dog.add(g)
	}
	return answer{g: g}
}

// maxSpan bounds the durations that replies name, so that sums of them do not overflow.
const maxSpan = 100 * 365 * 24 * time.Hour

// micro returns us microseconds, at most maxSpan.
func micro(us int64) time.Duration {
	return time.Duration(min(us, maxSpan.Microseconds())) * time.Microsecond
}
