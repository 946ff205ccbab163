package lockcore

import (
	"slices"
	"time"
)

const (
	subscribeAfter = time.Second           // a Locker that holds a lease for longer listens for Revoke
	checkPause     = 50 * time.Millisecond // between two batches of leases that are checked
	checkAgain     = time.Second           // between two rounds of that
)

// aged lists the grants of a Locker whose leases have not ended, from the oldest to the youngest, guarded by Locker.mu. One timer finds the first that gets older than
// subscribeAfter, so that a lease needs neither a timer nor a goroutine for that, and a short one costs two assignments. The timer is set as
// long as there is a grant and no subscription: ageLocked sets it with the first grant, age again while the oldest is young, and wake.end
// when the subscription closes.
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

// longLocked is how soon the oldest grant gets older than subscribeAfter; ok is false if there is none.
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

// age subscribes if there is an old grant, and sets the timer if there is a young one. With neither the next grant sets it.
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

// holdsLong says that there is an old grant, for which the subscription stays. If not, the subscription may close, and the timer is set.
func (l *Locker) holdsLong() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, ok := l.aged.longLocked()
	if ok && in > 0 && !l.aged.set && !l.ended {
		l.ageInLocked(in)
	}
	return ok && in <= 0
}

// held is what the Locker holds.
func (l *Locker) held() []*grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*grant, 0, len(l.grants))
	for g := l.aged.oldest; g != nil; g = g.younger {
		all = append(all, g)
	}
	return all
}

// check renews all leases once, in batches with pauses, because a message about any of them may have been lost before the subscription was
// there. A NoRenew lease is only asked about. There is one check at a time; a subscription that comes up again meanwhile leads to one more.
// Close ends it with the watchdog.
func (w *wake) check() {
	defer w.l.wg.Done()
	ctx := w.l.dog.ctx
	for again := true; again; {
		w.mu.Lock()
		w.again = false
		w.mu.Unlock()
		since := time.Now() // the subscription is up
		for batch := range slices.Chunk(w.l.held(), batchKeys) {
			w.l.dog.check(batch, since)
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
