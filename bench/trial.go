package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// moment says what goes wrong, and when.
type moment string

const (
	partition   moment = "partition" // A's network falls silent between two renewals
	loseAcquire moment = "acquire"   // the reply to A's first acquisition is lost
	loseRenew   moment = "renew"     // that to A's first renewal
	loseRelease moment = "release"   // that to A's release
)

const (
	callerTime = 10 * time.Second // how long A wants to wait for a key
	startTime  = 2 * time.Second  // how long it may take to get a free one, before another try
	startTries = 4
	workTime   = time.Second            // of a handler, where the lost reply is that of acquire
	shortWork  = 300 * time.Millisecond // and where it is that of release
)

// trial is one round: A has a key, B waits for it, and something happens to A's network.
type trial struct {
	point point
	key   string
	after time.Duration // partition: from A's grant to the silence
	net   *link         // A's
	a, b  contend

	mu     sync.Mutex
	loss   time.Time       // when the network failed
	told   context.Context //nolint:containedctx // A's, which B looks at
	inA    stay
	inB    stay
	called time.Time // A's call of what lost its reply
	said   string    // what A's caller was told, and when
	saidAt time.Time
}

// stay is the time in which a handler works without having been told to stop.
type stay struct{ from, to time.Time } // to is zero while it lasts

// until is its end, now if it lasts.
func (s stay) until(now time.Time) time.Time {
	if s.to.IsZero() {
		return now
	}
	return s.to
}

// run returns when both have had the key and given it back, or ctx has ended. A goroutine may be left behind that hangs in a library.
func (t *trial) run(ctx context.Context) {
	switch t.point.Moment {
	case loseAcquire:
		t.runAcquire(ctx)
	default:
		t.runHeld(ctx)
	}
}

// runAcquire: B comes when Redis has given the key to A, whose answer is lost. Both work for as long, one after the other or not.
func (t *trial) runAcquire(ctx context.Context) {
	lost := make(chan struct{})
	t.net.trap(t.key, t.point.Cut, func() { t.lose(); close(lost) })
	var both sync.WaitGroup
	both.Go(func() {
		t.call()
		told, release, err := lockFor(ctx, callerTime, t.a, t.key)
		if t.tell("the key", err); err == nil {
			t.enterA(told)
			wait(told, workTime)
			t.leave(&t.inA)
			_ = release() // only what the first reply says is measured
		}
	})
	both.Go(func() {
		if waitFor(ctx, lost); ctx.Err() != nil {
			return
		}
		if told, release, err := t.b(ctx, t.key); err == nil {
			t.enterB()
			wait(told, workTime)
			t.leave(&t.inB)
			_ = release()
		}
	})
	both.Wait()
}

// runHeld: A has the key and B waits for it, when A's network fails.
func (t *trial) runHeld(ctx context.Context) {
	told, release, ok := t.start(ctx)
	if !ok {
		return
	}
	t.enterA(told)
	bIn := make(chan struct{})
	aOut := make(chan struct{})
	var both sync.WaitGroup
	both.Go(func() {
		if _, release, err := t.b(ctx, t.key); err == nil {
			t.enterB()
			close(bIn)
			waitFor(ctx, aOut)
			t.leave(&t.inB)
			_ = release()
		}
	})
	t.work(ctx, told)
	t.leave(&t.inA)
	if t.point.Moment == loseRenew {
		t.tellWork(told)
	}
	both.Go(func() { // in the partition it may hang
		if t.point.Moment != loseRelease {
			_ = release()
			return
		}
		t.net.trap(t.key, t.point.Cut, t.lose)
		t.call()
		t.tell("nil", release())
	})
	waitFor(ctx, bIn)
	close(aOut)
	both.Wait()
}

// start gives A the key that is to be disturbed. Some libraries do not always get a free one on a busy machine; that is not the question here.
func (t *trial) start(ctx context.Context) (told context.Context, release func() error, ok bool) {
	for range startTries {
		told, release, err := lockFor(ctx, startTime, t.a, t.key)
		if err == nil {
			return told, release, true
		}
		t.key += "'"
	}
	return nil, nil, false
}

// work is A's handler, which works until it is told to stop.
func (t *trial) work(ctx, told context.Context) {
	switch t.point.Moment {
	case partition:
		if wait(told, t.after); told.Err() != nil {
			return
		}
		t.lose()
		t.net.silence()
		waitFor(told, ctx.Done())
	case loseRenew:
		t.net.trap(t.key, t.point.Cut, t.lose)
		wait(told, handlerTime)
	default:
		wait(told, shortWork)
	}
}

// lockFor ends the waiting after d, but not the lock: some derive it from the ctx.
func lockFor(ctx context.Context, d time.Duration, c contend, key string) (context.Context, func() error, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(d, cancel)
	told, release, err := c(ctx, key)
	switch {
	case err != nil:
		cancel()
	case !timer.Stop():
		err = errors.Join(errLate, release())
	}
	return told, release, err
}

var errLate = errors.New("bench: granted too late")

// wait returns when ctx ends or d is over.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// waitFor returns when ctx ends or c is closed.
func waitFor(ctx context.Context, c <-chan struct{}) {
	select {
	case <-ctx.Done():
	case <-c:
	}
}
