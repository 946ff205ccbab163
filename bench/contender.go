package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// handlerTime is the deadline of the handler. If a library never reports a loss, its handler ends
// only at this deadline.
const handlerTime = 10 * time.Second

// contend acquires key, and waits for it as its library does, until ctx ends at the latest. It may
// derive the ctx of the lock from ctx. told is the ctx of the handler: it ends when the library, or
// the watchdog around it, stops the holder. release releases the key.
type contend func(ctx context.Context, key string) (told context.Context, release func() error, err error)

// contender is a library together with one way to use it, in the scenarios with faults.
type contender struct {
	name     string // of a library, with a + and the way to use it
	settings string
	renews   bool // the lease is renewed
	repeats  bool // it acquires and releases like a contender above it
	open     func(l *link, addr string, lease time.Duration) (contend, error)
}

const (
	watchdogText = "With the usual watchdog, as in redislock's README: a goroutine that %s every third of the lease and cancels the handler's ctx if that fails"
	plainText    = "%s a lease of 3 s without renewal. The handler does not notice the end of the lease, and works until its deadline of 10 s. A handler that always ends before its lease never overlaps another one, with or without a fault"
	timeoutText  = "The same, with ContextTimeoutEnabled on the go-redis client"
	carefulText  = "The same, and each renewal and release has a ctx of 1 s, a third of the lease. No README recommends that, but a careful user may do it; %s would also suffice. The holder gives up its lease if a renewal gets no reply in that time"
)

// contenders has all contenders, in the order of the tables.
var contenders = []contender{
	{name: "redsync", settings: usedAs(plainText, "NewMutex, unlimited tries with its default pauses of 50 to 250 ms,"), open: openRedsyncAs(usage{})},
	{name: "redsync+watchdog", settings: usedAs(watchdogText, "calls ExtendContext"), renews: true, repeats: true, open: openRedsyncAs(usage{watchdog: true})},
	{name: "redsync+watchdog+timeouts", settings: timeoutText, renews: true, open: openRedsyncAs(usage{watchdog: true, timeouts: true})},
	{name: "redsync+careful", settings: usedAs(carefulText, "a timer on its Mutex.Until"), renews: true, open: openRedsyncAs(usage{watchdog: true, timeouts: true, bounded: true})},
	{name: "redislock", settings: usedAs(plainText, "Obtain, LinearBackoff(100 ms) as in its example,"), open: openRedislockAs(usage{})},
	{name: "redislock+watchdog", settings: usedAs(watchdogText, "calls Refresh"), renews: true, repeats: true, open: openRedislockAs(usage{watchdog: true})},
	{name: "redislock+watchdog+timeouts", settings: timeoutText, renews: true, open: openRedislockAs(usage{watchdog: true, timeouts: true})},
	{name: "redislock+careful", settings: usedAs(carefulText, "a separate timer"), renews: true, open: openRedislockAs(usage{watchdog: true, timeouts: true, bounded: true})},
	{name: "rueidislock", settings: "WithContext with its README's options, KeyMajority 1 and NoLoopTracking, and KeyValidity 3 s; it renews every 1.5 s, and its release returns nothing", renews: true, open: openRueidislockUnder},
	{name: holdfastName, settings: "Acquire with Terms{Wait: lockcore.Forever, Lease: 3 s}; it renews every 1 s", renews: true, open: openHoldfastUnder},
}

// at reports whether c is measured with the fault m.
func (c contender) at(m moment) bool {
	switch m {
	case loseRenew:
		return c.renews
	case loseAcquire, loseRelease:
		return !c.repeats
	default:
		return true
	}
}

func contenderNamed(name string) (contender, bool) {
	for _, c := range contenders {
		if c.name == name {
			return c, true
		}
	}
	return contender{}, false
}

// usage is a way to use a library without a watchdog.
type usage struct {
	watchdog bool
	timeouts bool // go-redis honors the deadline of a ctx also while it reads and writes
	bounded  bool // each renewal and release has a deadline
}

func (u usage) client(l *link, addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, Dialer: l.dial, ContextTimeoutEnabled: u.timeouts})
}

// bound returns the ctx of one renewal or release.
func (u usage) bound(ctx context.Context, lease time.Duration) (context.Context, context.CancelFunc) {
	if u.bounded {
		return context.WithTimeout(ctx, lease/3)
	}
	return ctx, func() {}
}

// release returns a function that ends the watchdog and then releases the key.
func (u usage) release(stop context.CancelFunc, lease time.Duration, call func(context.Context) error) func() error {
	return func() error {
		stop()
		ctx, cancel := u.bound(context.Background(), lease)
		defer cancel()
		return call(ctx)
	}
}

// watch returns the handler's ctx. With a watchdog it ends when a renewal fails, otherwise at the
// handler's deadline.
func (u usage) watch(lease time.Duration, renew func(context.Context) error) (context.Context, context.CancelFunc) {
	if !u.watchdog {
		return context.WithTimeout(context.Background(), handlerTime)
	}
	work, cancel := context.WithCancelCause(context.Background())
	go func() { // ends with work
		t := time.NewTicker(lease / 3)
		defer t.Stop()
		for {
			select {
			case <-work.Done():
				return
			case <-t.C:
			}
			ctx, done := u.bound(work, lease)
			err := renew(ctx)
			done()
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	return work, func() { cancel(errReleased) }
}

var errReleased = errors.New("bench: released")
