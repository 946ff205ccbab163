package lockcore

import (
	"bytes"
	"hash/maphash"
	"sync"
	"time"
)

// shards of the lines, so that calls on different keys rarely meet at a lock.
const shards = 64

type shard struct {
	mu    sync.Mutex
	lines [2]map[string]*line // by kind, by key; as long as somebody has the baton
}

var seed = maphash.MakeSeed()

// line is where the calls of one process stand for a key. Somebody always has its baton: the call that asks Redis, the
// tenure that runs, or who passes it on. Whoever has it sees to it that the line goes on, by goOn, done or a tenure, and drops it
// only under the lock and only when nobody stands in line; then the line is gone too. The loss of a lease takes the baton from its tenure,
// so that nobody waits for a handler that does not stop.
//
// Everything below mu is guarded by it: the shard's lock. Taking it out of the list decides for a waiting call: who does that
// sends exactly one turn, and a call that is not in the list any more awaits it.
type line struct {
	*shard
	l    *Locker
	kind Kind
	key  string
	keys [2]string

	first, last *call // in order of arrival; the one that asks Redis has left it
	n           int
	untold      chan struct{} // closed when it becomes known who has the key; for those who joined before, if there is an Observer
	late        int           // of them have waited long enough, but know nothing yet
	g           *grant        // the key is ours: a tenure runs under g, or it is on its way to one
	*news
}

// turn is what a waiting call gets: the key, the baton and perhaps an ask that is under way, or an outcome.
type turn struct {
	g   *grant
	a   *ask
	rec *Record
	tag string // fingerprint of rec
	err error
}

func (t turn) outcome() bool { return t.rec != nil || t.err != nil }

func (k Kind) index() int {
	if k == KindOnce {
		return 1
	}
	return 0
}

// line gets c the baton of a new line, or a place at the end of the one that there is. It refuses what is known to be in vain.
func (l *Locker) line(c *call) (front bool, err error) {
	s := &l.shards[maphash.String(seed, c.key)%shards]
	s.mu.Lock()
	ln := s.lines[c.kind.index()][c.key]
	if ln == nil {
		ln = &line{shard: s, l: l, kind: c.kind, key: c.key, keys: redisKeys(l.prefix, c.kind, c.key), news: noNews}
		if s.lines[c.kind.index()] == nil {
			s.lines[c.kind.index()] = map[string]*line{}
		}
		s.lines[c.kind.index()][c.key] = ln
		c.line = ln
		s.mu.Unlock()
		return true, nil
	}
	c.line = ln
	if ln.g != nil && other(ln.g.tag, c.tag) {
		s.mu.Unlock()
		return false, &MismatchError{Key: c.key}
	}
	if c.terms.Wait == NoWait && ln.knownLocked(c) {
		said := ln.sayLocked()
		s.mu.Unlock()
		return false, said.refuse(c)
	}
	c.turn = make(chan turn, 1)
	if c.late = c.terms.Wait == NoWait; c.late {
		ln.late++
	}
	if c.late || time.Since(ln.asked) > fresh || other(ln.tag, c.tag) {
		ln.pokeLocked(c)
	}
	ln.appendLocked(c)
	c.has.place = true
	said := ln.sayLocked()
	if said.g == nil && said.busy == nil && l.obs != nil {
		if ln.untold == nil {
			ln.untold = make(chan struct{})
		}
		c.untold = ln.untold
	}
	s.mu.Unlock()
	c.contended = true
	if c.untold == nil {
		c.waits(said)
	}
	return false, nil
}

// appendLocked puts c at the end of the list.
func (ln *line) appendLocked(c *call) {
	c.inLine, c.prev = true, ln.last
	if ln.last != nil {
		ln.last.next = c
	} else {
		ln.first = c
	}
	ln.last = c
	ln.n++
	c.queue = ln.n
}

func other(a, b string) bool { return a != "" && b != "" && a != b }

// cutLocked takes c out of the list.
func (ln *line) cutLocked(c *call) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		ln.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		ln.last = c.prev
	}
	if c.late {
		ln.late--
	}
	c.prev, c.next, c.inLine = nil, nil, false
	ln.n--
}

// cutAllLocked takes out whom which says.
func (ln *line) cutAllLocked(which func(*call) bool) []*call {
	var out []*call
	for c := ln.first; c != nil; {
		next := c.next
		if which(c) {
			ln.cutLocked(c)
			out = append(out, c)
		}
		c = next
	}
	return out
}

// cutLateLocked takes out who has waited long enough. It is for the moment at which something becomes known.
func (ln *line) cutLateLocked() []*call {
	if ln.late == 0 {
		return nil
	}
	return ln.cutAllLocked(func(c *call) bool { return c.late })
}

// goOn passes the baton on: to the first in line, with the key if g fits it, or with the ask under way. If nobody stands in line it
// ends there, and what is left is given back to Redis in the background. Who calls it has the baton, and has it no more.
func (ln *line) goOn(g *grant, a *ask) {
	ln.mu.Lock()
	w, ours := ln.first, g
	if w == nil || g != nil && !g.fits(w, time.Now()) {
		ours = nil
	}
	if ln.g = ours; ours != nil {
		ln.news = noNews
	}
	var late []*call
	if w != nil {
		ln.cutLocked(w)
		if ours != nil {
			late = ln.cutLateLocked()
		}
	} else {
		// This comes before the line is deleted, so that the first call of a new line for this key finds the
		// withdrawal, see cleanups.before.
		if g != nil {
			g.giveBack()
		}
		if a != nil {
			a.end()
		}
		delete(ln.lines[ln.kind.index()], ln.key)
	}
	said := ln.sayLocked()
	ln.mu.Unlock()
	if w == nil {
		return
	}
	if g != nil && ours == nil {
		a = g.insteadOf(w)
	}
	w.turn <- turn{g: ours, a: a}
	said.refuseAll(late)
}

// ours notes that the key is g's, and refuses who cannot wait for it. Its caller has the baton.
func (ln *line) ours(g *grant) {
	ln.mu.Lock()
	ln.g, ln.news = g, noNews
	late := ln.cutLateLocked()
	var others []*call
	if g.tag != "" {
		others = ln.cutAllLocked(func(c *call) bool { return other(g.tag, c.tag) })
	}
	said := ln.sayLocked()
	ln.mu.Unlock()
	said.refuseAll(late)
	refuseOthers(others)
}

// notOurs takes ours back: g was over before its tenure began.
func (ln *line) notOurs() {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	ln.g = nil
}

// release takes the baton from the tenure that has ended under g, unless the loss of the lease did. If the lease is alive it hands the key over to
// the first in line, and handed counts how often under g; if the streak is over, next is whom to ask for.
func (ln *line) release(g *grant, alive bool) (mine bool, handed int, next *call) {
	ln.mu.Lock()
	if ln.g != g {
		ln.mu.Unlock()
		return false, 0, nil
	}
	w, now := ln.first, time.Now()
	if !alive || w == nil || now.Sub(g.since) >= streakTime || !g.fits(w, now) {
		ln.g = nil
		ln.mu.Unlock()
		if !alive {
			w = nil
		}
		return true, 0, w
	}
	ln.cutLocked(w)
	late := ln.cutLateLocked()
	g.handed++
	handed, said := int(g.handed), ln.sayLocked()
	ln.mu.Unlock()
	w.turn <- turn{g: g}
	said.refuseAll(late)
	return true, handed, nil
}

// lost takes the baton from a tenure whose lease has ended early.
func (ln *line) lost(g *grant) {
	ln.mu.Lock()
	mine := ln.g == g //planted:leader-lost
	if mine {
		ln.g = nil
	}
	ln.mu.Unlock()
	if mine {
		ln.goOn(nil, nil)
	}
}

// done tells everybody in line that the key is done; nobody runs. Its caller has the baton, and has it no more.
func (ln *line) done(rec Record, tag string) {
	ln.mu.Lock()
	ln.g = nil
	all := ln.cutAllLocked(func(*call) bool { return true })
	delete(ln.lines[ln.kind.index()], ln.key)
	ln.mu.Unlock()
	for _, c := range all {
		c.turn <- turn{rec: &Record{Data: bytes.Clone(rec.Data), Attempt: rec.Attempt}, tag: tag}
	}
}
