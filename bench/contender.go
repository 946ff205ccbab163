package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// handlerTime is the handler's own deadline, which is all that ends it where its library never tells it of a loss.
const handlerTime = 10 * time.Second

// contend waits for key as its library does and as long as ctx allows, which it may derive the lock from. told ends when the
// library, or the watchdog around it, tells the holder to stop; release gives the key back.
type contend func(ctx context.Context, key string) (told context.Context, release func() error, err error)

// contender is a library in the scenarios with faults, used in one way.
type contender struct {
	name     string // a library's, with a way to use it after a +
	settings string
	renews   bool // somebody renews the lease
	repeats  bool // it acquires and releases as one above does
	open     func(l *link, addr string, lease time.Duration) (contend, error)
}

const (
	watchdogText = "Around it the usual watchdog, as in redislock's README: a goroutine that %s every third of the lease and cancels the handler's ctx when that fails"
	plainText    = "%s with 3 s, without renewal; the handler does not learn of the end and works until its own deadline of 10 s. One that is always shorter than its lease has no overlap, with or without a fault"
	timeoutText  = "The same, with ContextTimeoutEnabled on the go-redis client"
	carefulText  = "The same, and each renewal and release has a ctx of 1 s, a third of the lease. No README says so; a careful user would do it; %s would do too. It gives up a lease whose renewal has no answer in that time"
)

// contenders are all there are, in the order of the tables.
var contenders = []contender{
	{name: "redsync", settings: usedAs(plainText, "NewMutex, unlimited tries 50 to 250 ms apart, its default,"), open: openRedsyncAs(usage{})},
	{name: "redsync+watchdog", settings: usedAs(watchdogText, "calls ExtendContext"), renews: true, repeats: true, open: openRedsyncAs(usage{watchdog: true})},
	{name: "redsync+watchdog+timeouts", settings: timeoutText, renews: true, open: openRedsyncAs(usage{watchdog: true, timeouts: true})},
	{name: "redsync+careful", settings: usedAs(carefulText, "a timer on its Mutex.Until"), renews: true, open: openRedsyncAs(usage{watchdog: true, timeouts: true, bounded: true})},
	{name: "redislock", settings: usedAs(plainText, "Obtain, LinearBackoff(100 ms) as in its example,"), open: openRedislockAs(usage{})},
	{name: "redislock+watchdog", settings: usedAs(watchdogText, "calls Refresh"), renews: true, repeats: true, open: openRedislockAs(usage{watchdog: true})},
	{name: "redislock+watchdog+timeouts", settings: timeoutText, renews: true, open: openRedislockAs(usage{watchdog: true, timeouts: true})},
	{name: "redislock+careful", settings: usedAs(carefulText, "a timer of its own"), renews: true, open: openRedislockAs(usage{watchdog: true, timeouts: true, bounded: true})},
	{name: "rueidislock", settings: "WithContext with its README's options, KeyMajority 1 and NoLoopTracking, and KeyValidity 3 s; it renews by itself every 1.5 s, and its release returns nothing", renews: true, open: openRueidislockUnder},
	{name: holdfastName, settings: "Acquire with Terms{Wait: lockcore.Forever, Lease: 3 s}; it renews by itself every 1 s", renews: true, open: openHoldfastUnder},
}

// at says whether c has anything to show at a point.
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

// usage is how a library without a watchdog is used.
type usage struct {
	watchdog bool
	timeouts bool // go-redis obeys the deadline of a ctx also while it reads and writes
	bounded  bool // each renewal and release has a deadline
}

func (u usage) client(l *link, addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, Dialer: l.dial, ContextTimeoutEnabled: u.timeouts})
}

// bound is the ctx of one renewal or release.
func (u usage) bound(ctx context.Context, lease time.Duration) (context.Context, context.CancelFunc) {
	if u.bounded {
		return context.WithTimeout(ctx, lease/3)
	}
	return ctx, func() {}
}

// release is what gives the key back, after the watchdog has ended.
func (u usage) release(stop context.CancelFunc, lease time.Duration, call func(context.Context) error) func() error {
	return func() error {
		stop()
		ctx, cancel := u.bound(context.Background(), lease)
		defer cancel()
		return call(ctx)
	}
}

// watch returns the handler's ctx: with a watchdog it ends when a renewal fails, else at the handler's own deadline.
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
