package lockcore

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	wakeIdle  = time.Minute     // without use, the subscription closes after this time
	pingEvery = 3 * time.Second // to detect a dead connection
)

// wake is the one subscription of a Locker. It starts with the first waiter, or with the first
// lease that is held for a second, and closes when there has been neither for a minute. A message
// is only a signal: its receiver asks Redis again.
//
// The reader never blocks: it looks up a map entry and sends to a channel with room for one. While
// running is true, under mu, the reader will look at waiters and used again. So no waiter registers
// with a reader that is about to end.
type wake struct {
	l *Locker

	mu      sync.Mutex
	waiters map[string]chan struct{} // by request
	used    time.Time
	running bool
	up      bool // subscribed, or a Subscription event will follow
	closed  bool
	cancel  context.CancelFunc

	checking, again bool // see check
}

// ready reports whether a message for a new waiter would arrive.
func (w *wake) ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up
}

// register directs the messages for a request to ch. If the subscription is up it signals ch at
// once, because a message may have come before.
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
	w.used = time.Now()
}

// start starts the subscription if there is none.
func (w *wake) start() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.used = time.Now()
	if w.running || w.closed || !w.l.startWorker() {
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
		_ = sub.Close()      // a subscription has nothing to lose
		for range messages { // until go-redis's own goroutine has noticed, at most 100 ms later
		}
		_ = closeClient()
	}()
	select {
	case <-closed:
	case <-w.l.base.Done():
	}
}

// end reports whether the reader must end, and ends it.
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
	case *redis.Subscription: // first, or after a gap in which messages were lost: all waiters send again
		w.mu.Lock()
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
	case *redis.Message:
		if id, ok := strings.CutPrefix(m.Payload, "w"); ok {
			w.mu.Lock()
			if ch, ok := w.waiters[id]; ok {
				signal(ch)
			}
			w.mu.Unlock()
			w.l.cleanups.hurry(id)
		} else if id, ok := strings.CutPrefix(m.Payload, "v"); ok {
			w.l.revoked(id)
		}
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // there is one already
	}
}
