package lockcore

import "time"

// contend asks for the key until there is an outcome. It is called with the baton; a tenure keeps it, any other outcome passes
// it on.
func (c *call) contend(a *ask) (*hold, *Record, error) {
	if a == nil {
		a = newAsk(c)
	} else {
		a.adopt(c)
	}
	for {
		c.has.a = a
		if err := c.sleep(a); err != nil {
			c.pass(nil, a) //planted:leader-gives-up
			return nil, nil, err
		}
		sent := time.Now()
		reply, err := a.send(c)
		if err != nil {
			if err := c.unanswered(a, sent, err); err != nil {
				return nil, nil, err
			}
			continue
		}
		v := a.read(c, sent, reply)
		switch {
		case v.g != nil:
			if h, err := c.granted(a, v.g); h != nil || err != nil {
				return h, nil, err
			}
			a = v.g.insteadOf(c)
			a.next = sent.Add(minPause)
		case v.rec != nil:
			a.queued = false // the script saw to that
			a.end()
			c.has.a = nil
			c.line.done(*v.rec, v.tag)
			rec, err := c.accept(v.rec, v.tag)
			return nil, rec, err
		case v.busy != nil:
			if err := c.busy(a, sent, v); err != nil {
				return nil, nil, err
			}
		case v.err != nil:
			c.pass(nil, a)
			return nil, nil, v.err
		default:
			a.next = sent.Add(minPause)
		}
	}
}

// pass passes the baton on.
func (c *call) pass(g *grant, a *ask) {
	c.has.a = nil
	c.line.goOn(g, a)
}

// unanswered is told of a send without an answer. It returns an error if the call gives up.
func (c *call) unanswered(a *ask, sent time.Time, err error) error {
	//planted:end-of-call-itself
	if ended(c.ctx) { // that was the end of the call, and says nothing of Redis to those behind it
		s := c.line.say()
		if s.busy == nil {
			s.news = &news{err: err}
		}
		c.pass(nil, a)
		return s.refuse(c)
	}
	tries := c.line.heard(a, sent, answer{}, err)
	over := c.waited() - c.patience() // callTimeout: others of the line have asked before
	// A process that stood still may time out on its first try although Redis works.
	if permanent(err) || over >= 0 && (tries >= minTries || tries > 1 && over >= callTimeout) {
		c.pass(nil, a)
		return said{news: &news{err: err}}.refuse(c)
	}
	a.retry(tries)
	return nil
}

// granted starts the tenure. It returns an error if the call is gone, and neither if the lease is over: then nothing has given it back yet, see insteadOf.
func (c *call) granted(a *ask, g *grant) (*hold, error) {
	a.close()
	if c.ctx.Err() != nil { // whoever comes next may want it
		err := c.line.say().refuse(c)
		c.pass(g, nil) //planted:canceled-grant-passed-on
		return nil, err
	}
	c.has.g, c.has.a = g, nil
	c.line.ours(g)
	h := g.begin(c)
	c.has.g, c.has.h = nil, h
	if h == nil {
		c.line.notOurs()
		return nil, nil
	}
	c.line.tellWaiters()
	return h, nil
}

// busy is told of the answer busy. It returns an error if the call has waited long enough.
func (c *call) busy(a *ask, sent time.Time, v answer) error {
	a.open()
	c.line.heard(a, sent, v, nil)
	s := c.line.say()
	if c.terms.Wait == NoWait || c.waited() >= c.terms.Wait {
		c.queue = max(c.queue, s.n+v.busy.Queue)
		err := s.refuse(c)
		c.pass(nil, a)
		return err
	}
	a.lineUp(v.busy)
	c.waits(s)
	return nil
}

// sleep waits until it is time to ask again: for a hint, by the clock, or not at all. It returns an error at the end of the call.
func (c *call) sleep(a *ask) error {
	d := time.Until(a.next)
	//planted:futile-hints
	if d > 0 && !a.deaf && a.futile > 3 { // messages are only hints: forged ones must not make us ask at any rate
		quiet := min(time.Millisecond<<min(a.futile, 8), d)
		if _, err := c.pause(nil, nil, quiet); err != nil {
			return err
		}
		d -= quiet
	}
	var woken, poked chan struct{}
	if !a.deaf { // else Redis did not answer, and hints do not count
		woken, poked = a.woken, a.poked
	}
	hinted, err := c.pause(woken, poked, d)
	switch {
	case hinted:
		a.futile++
	case d > 0 && !a.deaf:
		a.futile = 0
	}
	return err
}

// pause returns after d, with a hint, or with an error at the end of the call; without a channel for hints that is not before
// Redis has been asked once more.
func (c *call) pause(woken, poked chan struct{}, d time.Duration) (hinted bool, err error) {
	if d <= 0 {
		select {
		case <-c.ctx.Done():
			return false, c.line.say().refuse(c)
		case <-c.l.closing:
			return false, ErrClosed
		default:
			return false, nil
		}
	}
	end := c.patience() - c.waited()
	timer := time.NewTimer(max(min(d, end), 0))
	defer timer.Stop()
	select {
	case <-woken:
		return true, nil
	case <-poked:
		return false, nil
	case <-timer.C:
		if d >= end && woken != nil {
			return false, c.line.say().refuse(c)
		}
		return false, nil
	case <-c.ctx.Done():
		return false, c.line.say().refuse(c)
	case <-c.l.closing:
		return false, ErrClosed
	}
}
