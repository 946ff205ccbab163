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
	subscriptionIdle = time.Minute            // an unused subscription closes after this time
	revokePause      = 100 * time.Millisecond // minimum time between two renewals that notifications about one grant cause
)

// subscription receives the notifications of a Locker, which has only one. It starts with the first
// waiter, or when a lease has been held for a second. It closes after a minute without a waiter or
// such a lease. A notification proves nothing, so its receiver sends a command to Redis.
//
// receive never blocks: it looks up a map entry and sends to a channel with capacity 1. closeIdle
// decides under mu whether the subscription ends, and then cancels the ctx of listen under mu.
// receive ignores an EventSubscribed whose ctx has ended. So no waiter registers with a
// subscription that is about to end. A late EventSubscribed of an old subscription does not count
// for the next one.
type subscription struct {
	l *Locker

	mu      sync.Mutex
	waiters map[string]*waiter // by request id
	used    time.Time          // the end of the last use, which may be in the future
	running bool
	up      bool // EventSubscribed has arrived; after a gap in the subscription, another one follows
	closed  bool
	cancel  context.CancelFunc
	idle    *time.Timer

	checking, again bool // see check
}

// waiter is a request that receives notifications.
type waiter struct {
	signal chan struct{} // capacity 1
	cooled *time.Timer   // signals at the end of a cooldown; nil until a notification reports one; guarded by subscription.mu
}

// ready reports whether a notification for a new waiter would be received.
func (s *subscription) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

// register directs the notifications for a request to ch. If the subscription is up, register
// signals ch at once, because a notification may have been sent before.
func (s *subscription) register(id string, ch chan struct{}) {
	s.mu.Lock()
	if s.waiters == nil {
		s.waiters = map[string]*waiter{}
	}
	s.waiters[id] = &waiter{signal: ch}
	up := s.up
	s.mu.Unlock()
	if up {
		signal(ch)
	} else {
		s.start()
	}
}

func (s *subscription) unregister(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiter := s.waiters[id]; waiter != nil && waiter.cooled != nil {
		waiter.cooled.Stop() // if it has fired, the channel has a signal that no call reads
	}
	delete(s.waiters, id) //planted:waiter-removed
	s.useLocked(0)
}

// start starts the subscription if there is none.
func (s *subscription) start() { s.startFor(0) }

// startFor is start. The subscription then stays open for d and a minute.
func (s *subscription) startFor(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useLocked(d)
	if s.running || s.closed || !s.l.startWorker() {
		return
	}
	ctx, cancel := context.WithCancel(s.l.base)
	s.running, s.cancel = true, cancel
	s.idle = time.AfterFunc(subscriptionIdle/4, s.closeIdle)
	go s.listen(ctx) // owner: subscription, which ends it by cancel; join waits for it
}

// useLocked records that the subscription is used from now on for d.
func (s *subscription) useLocked(d time.Duration) {
	if until := time.Now().Add(d); until.After(s.used) {
		s.used = until
	}
}

func (s *subscription) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.running {
		s.endLocked()
	}
}

func (s *subscription) listen(ctx context.Context) {
	defer s.l.wg.Done()
	s.l.backend.Listen(ctx, func(n backend.Notification) { s.receive(ctx, n) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() == nil { // the subscription ended by itself
		s.l.hasOldGrant() // sets the age timer
		s.endLocked()
	}
}

// closeIdle ends the subscription if it has not been used for a minute.
func (s *subscription) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running {
		return
	}
	if s.l.hasOldGrant() {
		s.useLocked(0)
	}
	if len(s.waiters) > 0 || time.Since(s.used) < subscriptionIdle {
		s.idle.Reset(subscriptionIdle / 4)
		return
	}
	s.endLocked()
}

func (s *subscription) endLocked() {
	s.running, s.up = false, false
	s.cancel()
	s.idle.Stop()
}

// receive handles a notification of the subscription that ctx belongs to.
func (s *subscription) receive(ctx context.Context, n backend.Notification) {
	switch n.Event {
	case backend.EventSubscribed: // for the first time, or after a gap in which notifications were lost: all waiters send again
		s.mu.Lock()
		if ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		s.up = true
		for _, waiter := range s.waiters { //planted:resubscribed
			signal(waiter.signal)
		}
		check := !s.checking && s.l.startWorker()
		s.checking, s.again = s.checking || check, true
		s.mu.Unlock()
		if check {
			go s.check() // owner: subscription; join waits for it
		}
	case backend.EventTurn:
		s.mu.Lock()
		if waiter := s.waiters[n.Request]; waiter != nil {
			signal(waiter.signal)
		}
		s.mu.Unlock()
	case backend.EventCooling:
		s.mu.Lock()
		if waiter := s.waiters[n.Request]; waiter != nil && n.In < waitCap { // the request is sent again after waitCap anyway
			waiter.signalAfterLocked(n.In)
		}
		s.mu.Unlock()
	case backend.EventRevoked:
		s.l.revoked(n.Request)
	case backend.EventWake:
		key := s.l.backend.Key(n.Kind, n.Name)
		s.l.passParked(&key, access.ParkedFree)
	}
}

// signalAfterLocked signals the request after d. A later notification replaces the time, because it
// is about a newer state of the key. If it is forged, the request is sent again within waitCap.
func (w *waiter) signalAfterLocked(d time.Duration) {
	if w.cooled != nil {
		w.cooled.Reset(d)
		return
	}
	w.cooled = time.AfterFunc(d, func() { signal(w.signal) })
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // the channel has a signal already
	}
}

const (
	subscribeAfter = time.Second           // a Locker with an older lease subscribes, to receive revocations
	checkPause     = 50 * time.Millisecond // between two batches of a check
	checkAgain     = time.Second           // between two checks
)

// ageList lists the grants of a Locker whose leases have not ended, from the oldest to the
// youngest. Locker.mu guards it. One timer finds the first grant that is older than subscribeAfter.
// So a lease needs no timer or goroutine for this, and a short lease costs two assignments.
//
// The timer is set while there is a grant and no subscription. addByAgeLocked sets it for the first
// grant, onAgeTimer while the oldest grant is young, and hasOldGrant when the subscription closes.
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
	if g.older == nil && a.oldest != g { // it was removed when its lease ended
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

// onAgeTimer subscribes if there is an old grant, and sets the timer again if all grants are young.
// Without a grant it does nothing, because the next grant sets the timer.
func (l *Locker) onAgeTimer() {
	l.mu.Lock()
	l.byAge.set = false
	in, ok := l.byAge.untilOldLocked()
	if ok && in > 0 && !l.ended {
		l.setAgeTimerLocked(in)
	}
	l.mu.Unlock()
	if ok && in <= 0 {
		l.subscription.start()
	}
}

// hasOldGrant reports whether there is an old grant. The subscription must stay open for such a
// grant. If there is none, hasOldGrant sets the timer, because the subscription may close.
func (l *Locker) hasOldGrant() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	in, ok := l.byAge.untilOldLocked()
	if ok && in > 0 && !l.byAge.set && !l.ended {
		l.setAgeTimerLocked(in)
	}
	return ok && in <= 0
}

// grantsByAge returns the grants of the Locker, the oldest first.
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
// may have been lost before the Locker subscribed. For a fixed lease it only reads the state. One
// check runs at a time. If the Locker subscribes again meanwhile, one more check follows.
// watchdog.stop ends the check.
func (s *subscription) check() {
	defer s.l.wg.Done()
	ctx := s.l.watchdog.ctx
	for again := true; again; {
		s.mu.Lock()
		s.again = false
		s.mu.Unlock()
		since := time.Now() // the subscription is up
		for batch := range slices.Chunk(s.l.grantsByAge(), batchKeys) {
			s.l.watchdog.check(batch, since)
			if !backend.Sleep(ctx, checkPause) {
				break
			}
		}
		_ = backend.Sleep(ctx, checkAgain)
		s.mu.Lock()
		again = s.again && ctx.Err() == nil
		s.checking = again
		s.mu.Unlock()
	}
}

// debounceRevoke returns the grant with this id if the notification of its revocation must be
// checked now, and nil otherwise. It lets the first notification through at once, and then at most
// one per revokePause.
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
// can send one. So the watchdog sends a renewal, at a bounded rate, and the reply decides. For a
// fixed lease the renewal only reads the state.
//
// A share is closed first. A call that joined it before that may be in the list of its grants
// already. Otherwise the call registers its grant and then checks whether the share is closed, see
// runShare.
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
