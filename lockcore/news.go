package lockcore

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/errtext"
)

// fresh is how old what Redis said may be before a call that comes has it asked again.
const fresh = 100 * time.Millisecond

// news is what a line knows of its key, while it is not ours. It is never changed: who has said it may still be reading.
type news struct {
	busy   *BusyError    // last busy answer, nil before
	tag    string        // fingerprint of who has the key
	asked  time.Time     // when that was sent
	at     time.Time     // when it came
	poke   chan struct{} // makes the one that asks ask again
	err    error         // of the last send
	failed int           // sends without an answer in a row
}

var noNews = new(news)

// heard notes what Redis said to what was sent then, or that it said nothing, and refuses who waited only for that. It returns how
// often in a row it said nothing.
func (ln *line) heard(a *ask, sent time.Time, v answer, err error) (failed int) {
	ln.mu.Lock()
	if b := v.busy; err != nil {
		n := *ln.news
		n.err = err
		n.failed++
		ln.news = &n
	} else {
		if ln.busy != nil && b.kept() && b.Remaining <= claimWindow {
			b.Holder = ln.busy.Holder // reserved, not parked: the last holder is the better answer
		}
		ln.news = &news{busy: b, tag: v.tag, asked: sent, at: time.Now(), poke: a.poked}
	}
	late := ln.cutAllLocked(func(c *call) bool { return c.late && ln.knownLocked(c) })
	if ln.late > 0 && ln.poke != nil {
		hint(ln.poke)
	}
	var others []*call
	if err == nil && ln.tag != "" {
		others = ln.cutAllLocked(func(c *call) bool { return other(ln.tag, c.tag) && !ln.asked.Before(c.start) })
	}
	said := ln.sayLocked()
	ln.mu.Unlock()
	if err == nil {
		ln.tellWaiters()
	}
	said.refuseAll(late)
	refuseOthers(others)
	return said.failed
}

// tellWaiters tells those who did not know for whom they wait.
func (ln *line) tellWaiters() {
	if ln.l.obs == nil {
		return
	}
	ln.mu.Lock()
	defer ln.mu.Unlock()
	if ln.untold != nil {
		close(ln.untold)
		ln.untold = nil
	}
}

// pokeLocked has Redis asked for c if nothing is known that is new enough.
func (ln *line) pokeLocked(c *call) {
	if ln.poke != nil && !ln.knownLocked(c) {
		hint(ln.poke)
	}
}

// knownLocked says that c can be refused: the key is ours, or Redis was asked after c had come, or does not answer.
func (ln *line) knownLocked(c *call) bool {
	return ln.g != nil || ln.busy != nil && !ln.asked.Before(c.start) || ln.failed >= minTries
}

// said is what a line knows, to be used outside the lock.
type said struct {
	*news
	g *grant
	n int // in line
}

func (ln *line) sayLocked() said { return said{ln.news, ln.g, ln.n} }

func (ln *line) say() said {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.sayLocked()
}

// refuseOthers refuses calls with another fingerprint than that of who has the key.
func refuseOthers(others []*call) {
	for _, c := range others {
		c.turn <- turn{err: &MismatchError{Key: c.key}}
	}
}

func (s said) refuseAll(late []*call) {
	for _, c := range late {
		c.turn <- turn{err: s.refuse(c)}
	}
}

// refuse is the error of a call whose time is up: who has the key, or what Redis said last.
func (s said) refuse(c *call) error {
	var err error
	switch {
	case s.g != nil || s.busy != nil && s.failed < 2: // one failure may have been the end of ctx itself
		err = s.holder(c)
	case s.err != nil:
		err = unavailable(s.err)
	case !ended(c.ctx):
		err = unavailable(errors.New("no answer yet"))
	default:
		return errtext.Wrap(ErrNotRun, endOf(c.ctx))
	}
	if end := endOf(c.ctx); end != nil {
		err = errtext.Join(err, end)
	}
	return err
}

// holder says who has the key.
func (s said) holder(c *call) *BusyError {
	if s.g != nil {
		return s.g.busy(c, s.n)
	}
	b := *s.busy
	since := time.Since(s.at)
	if !b.kept() {
		b.HeldFor += since
	}
	b.Waited, b.Remaining, b.Queue = c.waited(), max(b.Remaining-since, 0), b.Queue+s.n
	return &b
}
