package lockcore

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
)

const (
	wakeIdle    = time.Minute            // without use, the subscription closes after this time
	revokePause = 100 * time.Millisecond // between two renewals that notifications about one grant cause
)

// wake is the one subscription of a Locker. It starts with the first waiter, or with the first
// lease that is held for a second, and closes when there has been neither for a minute. A
// notification proves nothing: its receiver sends a command to Redis.
//
// receive never blocks: it looks up a map entry and sends to a channel with room for one. closeIdle
// decides under mu whether the subscription ends. It cancels the ctx of listen there, and receive
// ignores a notification whose ctx has ended. So no waiter registers with a subscription that is
// about to end, and a late notification of the old one does not count for the next.
type wake struct {
	l *Locker

	mu      sync.Mutex
	waiters map[string]chan struct{} // by request
	used    time.Time                // the last use, perhaps in the future
	running bool
	up      bool // subscribed, or EventSubscribed will follow
	closed  bool
	cancel  context.CancelFunc
	idle    *time.Timer

	checking, again bool // see check
}

// ready reports whether a notification for a new waiter would arrive.
func (w *wake) ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// register directs the notifications for a request to ch. If the subscription is up it signals ch
// at once, because a notification may have come before.
func (w *wake) register(id string, ch chan struct{}) {
	w.mu.Lock()
	if w.waiters == nil {
		w.waiters = map[string]chan struct{}{}
	}
	w.waiters[id] = ch
	up := w.up
	w.mu.Unlock()
	if up {
		signal(ch)
	} else {
		w.start()
	}
}

func (w *wake) unregister(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters, id) //planted:waiter-removed
	w.useLocked(0)
}

// start starts the subscription if there is none.
func (w *wake) start() { w.startFor(0) }

// startFor is start, and the subscription stays open for d and a minute.
func (w *wake) startFor(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.useLocked(d)
	if w.running || w.closed || !w.l.startWorker() {
		return
	}
	ctx, cancel := context.WithCancel(w.l.base)
	w.running, w.cancel = true, cancel
	w.idle = time.AfterFunc(wakeIdle/4, w.closeIdle)
	go w.listen(ctx) // owner: wake, which ends it by cancel; join waits for it
}

// useLocked notes that the subscription is used from now on for d.
func (w *wake) useLocked(d time.Duration) {
	if until := time.Now().Add(d); until.After(w.used) {
		w.used = until
	}
}

func (w *wake) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.running {
		w.endLocked()
	}
}

func (w *wake) listen(ctx context.Context) {
	defer w.l.wg.Done()
	w.l.backend.Listen(ctx, func(n backend.Notification) { w.receive(ctx, n) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() == nil { // the subscription ended by itself
		w.l.hasOldGrant() // sets the timer
		w.endLocked()
	}
}

// closeIdle ends the subscription if it has not been used for a minute.
func (w *wake) closeIdle() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return
	}
	if w.l.hasOldGrant() {
		w.useLocked(0)
	}
	if len(w.waiters) > 0 || time.Since(w.used) < wakeIdle {
		w.idle.Reset(wakeIdle / 4)
		return
	}
	w.endLocked()
}

func (w *wake) endLocked() {
	w.running, w.up = false, false
	w.cancel()
	w.idle.Stop()
}

// receive handles a notification of the subscription with ctx.
func (w *wake) receive(ctx context.Context, n backend.Notification) {
	switch n.Event {
	case backend.EventSubscribed: // first, or after a gap in which notifications were lost: all waiters send again
		w.mu.Lock()
		if ctx.Err() != nil {
			w.mu.Unlock()
			return
		}
		w.up = true
		for _, ch := range w.waiters { //planted:resubscribed
			signal(ch)
		}
		check := !w.checking && w.l.startWorker()
		w.checking, w.again = w.checking || check, true
		w.mu.Unlock()
		if check {
			go w.check() // owner: wake; join waits for it
		}
	case backend.EventTurn:
		w.mu.Lock()
		if ch, ok := w.waiters[n.Request]; ok {
			signal(ch)
		}
		w.mu.Unlock()
	case backend.EventRevoked:
		w.l.revoked(n.Request)
	case backend.EventWake:
		key := w.l.backend.Key(n.Kind, n.Name)
		w.l.passParked(&key, access.ParkedFree)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // there is one already
	}
}

const (
	subscribeAfter = time.Second           // a Locker with an older lease subscribes, to receive Revoke
	checkPause     = 50 * time.Millisecond // between two batches of a check
	checkAgain     = time.Second           // between two checks
)

// ageList lists the grants of a Locker whose leases have not ended, from the oldest to the
// youngest. Locker.mu guards it. One timer finds the first grant that gets older than
// subscribeAfter. So a lease needs neither its own timer nor a goroutine, and a short one costs two
// assignments. The timer is set while there is a grant and no subscription: by addByAgeLocked with
// the first grant, by onAgeTimer while the oldest is young, and by hasOldGrant when the
// subscription closes.
type ageList struct {
	oldest, youngest *grant
	timer            *time.Timer
	set              bool
}

// addByAgeLocked appends g.
func (l *Locker) addByAgeLocked(g *grant) {
	a := &l.byAge
	if g.older = a.youngest; g.older != nil {
		g.older.younger = g
	} else {
		a.oldest = g
	}
	a.youngest = g
	if !a.set {
		l.setAgeTimerLocked(subscribeAfter)
	}
}

func (a *ageList) removeLocked(g *grant) {
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

// untilOldLocked returns how soon the oldest grant is older than subscribeAfter. ok is false if
// there is no grant.
func (a *ageList) untilOldLocked() (in time.Duration, ok bool) {
	if a.oldest == nil {
		return 0, false
	}
	return subscribeAfter - elapsed(a.oldest.since), true
}

func (l *Locker) setAgeTimerLocked(in time.Duration) {
	l.byAge.set = true
	if l.byAge.timer == nil {
		l.byAge.timer = time.AfterFunc(in, l.onAgeTimer)
	} else {
		l.byAge.timer.Reset(in)
	}
}

// onAgeTimer subscribes if there is an old grant, and sets the timer if all are young. Without a
// grant it does nothing, and the next grant sets the timer.
func (l *Locker) onAgeTimer() {
	l.mu.Lock()
	l.byAge.set = false
	in, ok := l.byAge.untilOldLocked()
	if ok && in > 0 && !l.ended {
		l.setAgeTimerLocked(in)
	}
	l.mu.Unlock()
	if ok && in <= 0 {
		l.wake.start()
	}
}

// hasOldGrant reports whether there is an old grant, so that the subscription must stay. If not, the
// subscription may close, and hasOldGrant sets the timer.
func (l *Locker) hasOldGrant() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, ok := l.byAge.untilOldLocked()
	if ok && in > 0 && !l.byAge.set && !l.ended {
		l.setAgeTimerLocked(in)
	}
	return ok && in <= 0
}

// grantsByAge returns the grants of the Locker.
func (l *Locker) grantsByAge() []*grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*grant, 0, len(l.grants))
	for g := l.byAge.oldest; g != nil; g = g.younger {
		all = append(all, g)
	}
	return all
}

// check renews all leases once, in batches with pauses, because the notification of a revocation
// may have been lost before the Locker subscribed. Of a NoRenew lease it only reads the state. One
// check runs at a time; if the Locker subscribes again meanwhile, one more follows. Close ends it
// with the watchdog.
func (w *wake) check() {
	defer w.l.wg.Done()
	ctx := w.l.watchdog.ctx
	for again := true; again; {
		w.mu.Lock()
		w.again = false
		w.mu.Unlock()
		since := time.Now() // the subscription is up
		for batch := range slices.Chunk(w.l.grantsByAge(), batchKeys) {
			w.l.watchdog.check(batch, since)
			if !backend.Sleep(ctx, checkPause) {
				break
			}
		}
		_ = backend.Sleep(ctx, checkAgain)
		w.mu.Lock()
		again = w.again && ctx.Err() == nil
		w.checking = again
		w.mu.Unlock()
	}
}

// debounceRevoke returns a grant with an id if the notification of its revocation must be checked now:
// the first one at once, and at most one more per revokePause. Otherwise it returns nil.
func (l *Locker) debounceRevoke(id string) *grant {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.grants[id]
	if g == nil {
		return nil
	}
	if _, lately := l.recentRevokes[id]; lately {
		l.recentRevokes[id] = true
		return nil
	}
	if l.recentRevokes == nil {
		l.recentRevokes = map[string]bool{}
	}
	l.recentRevokes[id] = false
	time.AfterFunc(revokePause, func() {
		l.mu.Lock()
		again := l.recentRevokes[id]
		delete(l.recentRevokes, id)
		l.mu.Unlock()
		if again {
			l.revoked(id)
		}
	})
	return g
}

// revoked handles the notification of a revocation. It proves nothing, because any client of Redis
// can send one. So the watchdog sends a renewal, which only reads a NoRenew lease, at a bounded
// rate. Its reply decides.
//
// A share is closed first. A call that has joined it before is in the list of its grants, or finds it
// closed when it is registered, see runShare.
func (l *Locker) revoked(id string) {
	g := l.debounceRevoke(id)
	if g == nil {
		return
	}
	if g.share != nil {
		g.queue.closeShare(g.share)
	}
	l.mu.Lock()
	all := slices.Clone(g.allLocked())
	l.mu.Unlock()
	for _, g := range all {
		l.watchdog.renewNow(g)
	}
}
