package lockcore

import (
	"slices"
	"time"
)

const (
	subscribeAfter = time.Second           // a Locker with an older lease subscribes, to receive Revoke
	checkPause     = 50 * time.Millisecond // between two batches of a check
	checkAgain     = time.Second           // between two checks
)

// aged lists the grants of a Locker whose leases have not ended, from the oldest to the youngest. Locker.mu guards it.
// One timer finds the first grant that gets older than subscribeAfter. So a lease needs neither its own timer nor a
// goroutine, and a short one costs two assignments. The timer is set while there is a grant and no subscription: by
// ageLocked with the first grant, by age while the oldest is young, and by wake.end when the subscription closes.
type aged struct {
	oldest, youngest *grant
	timer            *time.Timer
	set              bool
}

// ageLocked appends g.
func (l *Locker) ageLocked(g *grant) {
	a := &l.aged
	if g.older = a.youngest; g.older != nil {
		g.older.younger = g
	} else {
		a.oldest = g
	}
	a.youngest = g
	if !a.set {
		l.ageInLocked(subscribeAfter)
	}
}

func (a *aged) removeLocked(g *grant) {
	if g.older == nil && a.oldest != g { // its lease has ended before
		return
	}
	if g.older != nil {
		g.older.younger = g.younger
	} else {
		a.oldest = g.younger
	}
	if g.younger != nil {
		g.younger.older = g.older
	} else {
		a.youngest = g.older
	}
	g.older, g.younger = nil, nil
}

// longLocked returns how soon the oldest grant gets older than subscribeAfter; ok is false if there is none.
func (a *aged) longLocked() (in time.Duration, ok bool) {
	if a.oldest == nil {
		return 0, false
	}
	return subscribeAfter - elapsed(a.oldest.since), true
}

func (l *Locker) ageInLocked(in time.Duration) {
	l.aged.set = true
	if l.aged.timer == nil {
		l.aged.timer = time.AfterFunc(in, l.age)
	} else {
		l.aged.timer.Reset(in)
	}
}

// age subscribes if there is an old grant, and sets the timer if all are young. Without a grant it does nothing, and
// the next grant sets the timer.
func (l *Locker) age() {
	l.mu.Lock()
	l.aged.set = false
	in, ok := l.aged.longLocked()
	if ok && in > 0 && !l.ended {
		l.ageInLocked(in)
	}
	l.mu.Unlock()
	if ok && in <= 0 {
		l.wake.start()
	}
}

// holdsLong reports whether there is an old grant, so that the subscription must stay. If not, the subscription may
// close, and holdsLong sets the timer.
func (l *Locker) holdsLong() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, ok := l.aged.longLocked()
	if ok && in > 0 && !l.aged.set && !l.ended {
		l.ageInLocked(in)
	}
	return ok && in <= 0
}

// held returns the grants of the Locker.
func (l *Locker) held() []*grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*grant, 0, len(l.grants))
	for g := l.aged.oldest; g != nil; g = g.younger {
		all = append(all, g)
	}
	return all
}

// check renews all leases once, in batches with pauses, because a message about any of them may have been lost before
// the Locker subscribed. Of a NoRenew lease it only reads the state. One check runs at a time; if the Locker subscribes
// again meanwhile, one more follows. Close ends it with the watchdog.
func (w *wake) check() {
	defer w.l.wg.Done()
	ctx := w.l.watchdog.ctx
	for again := true; again; {
		w.mu.Lock()
		w.again = false
		w.mu.Unlock()
		since := time.Now() // the subscription is up
		for batch := range slices.Chunk(w.l.held(), batchKeys) {
			w.l.watchdog.check(batch, since)
			if !sleep(ctx, checkPause) {
				break
			}
		}
		_ = sleep(ctx, checkAgain)
		w.mu.Lock()
		again = w.again && ctx.Err() == nil
		w.checking = again
		w.mu.Unlock()
	}
}
