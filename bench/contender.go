package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// contend acquires key, and waits for it as its library does, until ctx ends at the latest. told is
// the ctx of the handler: it ends when the library, or the watchdog around it, stops the holder.
// release releases the key.
type contend func(ctx context.Context, key string) (told context.Context, release func() error, err error)

// contenders are the libraries in the scenarios with faults. With +timeouts, go-redis honors the
// deadline of a ctx. With +careful, each renewal and release also has a deadline.
var contenders = []string{"redsync", "redsync+timeouts", "redsync+careful", "redislock", "redislock+timeouts", "redislock+careful", "rueidislock", holdfastName}

// The pauses and deadlines of contenders.
const (
	contendPause = 100 * time.Millisecond // of redislock, as in its example
	obtainTime   = time.Minute            // longer than any run: without a deadline, Obtain would stop waiting after one lease
)

// openContender opens a library, with a watchdog unless it has one.
func openContender(name string, n *link, addr string, lease time.Duration) (contend, error) {
	l, ok := libraryNamed(name)
	if !ok {
		return nil, fmt.Errorf("bench: no library %q", name)
	}
	careful := strings.HasSuffix(name, "+careful")
	opened, err := l.open(setup{addr: addr, dial: n.dial, lease: lease, pause: contendPause, timeouts: name != l.name})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, key string) (context.Context, func() error, error) {
		if _, ok := opened.(redislockLocker); ok {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, obtainTime)
			defer cancel()
		}
		h, err := opened.lock(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		if own, ok := h.(interface{ work() context.Context }); ok {
			return own.work(), func() error { return h.unlock(context.Background()) }, nil
		}
		lock, ok := h.(renewable)
		if !ok {
			return nil, nil, fmt.Errorf("bench: %s cannot renew", name)
		}
		w := watchdog{lock, lease, careful}
		work, stop := w.watch()
		return work, func() error {
			stop()
			ctx, cancel := w.bound(context.Background())
			defer cancel()
			return h.unlock(ctx)
		}, nil
	}, nil
}

// renewable is a lock of a library without a watchdog.
type renewable interface {
	renew(ctx context.Context, lease time.Duration) error
}

type watchdog struct {
	lock    renewable
	lease   time.Duration
	careful bool
}

// bound returns the ctx of one renewal or release.
func (w watchdog) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if w.careful {
		return context.WithTimeout(ctx, w.lease/3)
	}
	return ctx, func() {}
}

var errReleased = errors.New("bench: released")

// watch returns the handler's ctx, which ends when a renewal fails or stop is called.
func (w watchdog) watch() (work context.Context, stop func()) {
	work, cancel := context.WithCancelCause(context.Background())
	go func() { // ends with work
		t := time.NewTicker(w.lease / 3)
		defer t.Stop()
		for {
			select {
			case <-work.Done():
				return
			case <-t.C:
			}
			ctx, done := w.bound(work)
			err := w.lock.renew(ctx, w.lease)
			done()
			if err != nil {
				cancel(err)
				return
			}
		}
	}()
	return work, func() { cancel(errReleased) }
}
