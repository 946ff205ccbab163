package lockcore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	wakeIdle  = time.Minute     // the subscription closes after this long without use
	pingEvery = 3 * time.Second // so that a dead connection is noticed
)

// wake is the one subscription of a process. It starts with the first waiter, or the first lease that is held for a second, and
// closes when there has been neither for a minute. A message is never more than a hint: its receiver asks Redis again.
//
// The reader never blocks: a look-up in a map and a send to a channel with room for one. Under mu, running is true as
// long as a reader will look at waiters and used again, so that no waiter registers with a reader that is about to end.
type wake struct {
	l *Locker

	mu      sync.Mutex
	waiters map[string]chan struct{} // by ask
	used    time.Time
	running bool
	up      bool // the subscription stands, or stood and will be told to have been renewed
	closed  bool
	cancel  context.CancelFunc

	checking, again bool // see check
}

// ready says that a message for a new waiter would arrive.
func (w *wake) ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// register makes hints for an ask go to ch. If the subscription stands there is one at once: a message may have come
// before.
func (w *wake) register(id string, ch chan struct{}) {
	w.mu.Lock()
	if w.waiters == nil {
		w.waiters = map[string]chan struct{}{}
	}
	w.waiters[id] = ch
	up := w.up
	w.mu.Unlock()
	if up {
		hint(ch)
	} else {
		w.start()
	}
}

func (w *wake) unregister(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters, id) //planted:waiter-removed
	w.used = time.Now()
}

// start makes sure that there is a subscription.
func (w *wake) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used = time.Now()
	if w.running || w.closed || !w.l.begin() {
		return
	}
	ctx, cancel := context.WithCancel(w.l.base)
	w.running, w.cancel = true, cancel
	go w.listen(ctx) // owner: wake, which ends it by cancel; join waits for it
}

func (w *wake) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	if w.running {
		w.cancel()
	}
}

func (w *wake) listen(ctx context.Context) {
	defer w.l.wg.Done()
	client, closeClient := w.l.conn.subscriber(ctx)
	sub := w.subscribe(ctx, client)
	if sub == nil {
		w.end(true)
		return
	}
	messages := sub.ChannelWithSubscriptions(redis.WithChannelHealthCheckInterval(pingEvery))
	defer func() { w.hangUp(sub, messages, closeClient) }()
	idle := time.NewTicker(wakeIdle / 4)
	defer idle.Stop()
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				w.end(true)
				return
			}
			w.hear(m)
		case <-idle.C:
			if w.end(false) {
				return
			}
		case <-ctx.Done():
			w.end(true)
			return
		}
	}
}

// subscribe returns a subscription, or nil if ctx ends first. go-redis dials before it returns. On our own client the
// dial ends with ctx. On another client it ends by that client's own timeouts; then the subscription is closed as soon
// as it is made.
func (w *wake) subscribe(ctx context.Context, client redis.UniversalClient) *redis.PubSub {
	channel := w.l.wakePrefix + w.l.id
	if w.l.conn.own {
		return client.Subscribe(ctx, channel)
	}
	made := make(chan *redis.PubSub)
	go func() { // ends with the dial
		sub := client.Subscribe(ctx, channel)
		select {
		case made <- sub:
		case <-ctx.Done():
			_ = sub.Close()
		}
	}()
	select {
	case sub := <-made:
		return sub
	case <-ctx.Done():
		return nil
	}
}

// hangUp closes a subscription. On a client that is not ours its Close may wait for a dial that hangs: then until the Locker
// stops waiting.
func (w *wake) hangUp(sub *redis.PubSub, messages <-chan any, closeClient func() error) {
	closed := make(chan struct{})
	go func() { // ends with Close, which the client's own timeouts bound
		defer close(closed)
		_ = sub.Close()      // nothing is lost with a subscription
		for range messages { // until go-redis's own goroutine has noticed, at most 100 ms later
		}
		_ = closeClient()
	}()
	select {
	case <-closed:
	case <-w.l.base.Done():
	}
}

// end says whether the reader may go, and makes it so.
func (w *wake) end(anyway bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.l.holdsLong() {
		w.used = time.Now()
	}
	if !anyway && (len(w.waiters) > 0 || time.Since(w.used) < wakeIdle) {
		return false
	}
	w.running, w.up = false, false
	w.cancel()
	return true
}

func (w *wake) hear(m any) {
	switch m := m.(type) {
	case *redis.Subscription: // new, or renewed after a gap in which anything may have been said: all ask once
		w.mu.Lock()
		w.up = true
		for _, ch := range w.waiters { //planted:resubscribed
			hint(ch)
		}
		check := !w.checking && w.l.begin()
		w.checking, w.again = w.checking || check, true
		w.mu.Unlock()
		if check {
			go w.check() // owner: wake; join waits for it
		}
	case *redis.Message:
		if id, ok := strings.CutPrefix(m.Payload, "w"); ok {
			w.mu.Lock()
			if ch, ok := w.waiters[id]; ok {
				hint(ch)
			}
			w.mu.Unlock()
			w.l.cleanups.hurry(id)
		} else if id, ok := strings.CutPrefix(m.Payload, "v"); ok {
			w.l.revoked(id)
		}
	}
}

func hint(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // there is one already
	}
}
