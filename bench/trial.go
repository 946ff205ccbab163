package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

// moment is the kind of fault.
type moment string

const (
	partition   moment = "partition" // A's network loses all data from a moment between two renewals on
	loseAcquire moment = "acquire"   // the reply to A's first acquisition is lost
	loseRenew   moment = "renew"     // the reply to A's first renewal is lost
	loseRelease moment = "release"   // the reply to A's release is lost
)

const (
	callerTime  = 10 * time.Second // how long A waits for a key
	startTime   = 2 * time.Second  // how long A may wait for a free key, before another try
	startTries  = 4
	handlerTime = 10 * time.Second       // the longest time of a handler, if the reply to renew is lost
	workTime    = time.Second            // of a handler, if the reply to acquire is lost
	shortWork   = 300 * time.Millisecond // of a handler, if the reply to release is lost
)

// trial is one round: A has a key, B waits for it, and A's network has a fault.
type trial struct {
	point point
	key   string
	after time.Duration // partition: from A's grant to the silence
	net   *link         // A's
	a, b  contend

	mu     sync.Mutex
	loss   time.Time       // when the network failed
	told   context.Context //nolint:containedctx // of A; B reads it
	inA    stay
	inB    stay
	called time.Time // start of A's call whose reply is lost
	said   string    // result for A's caller
	saidAt time.Time
}

// stay is the time during which a handler works and its ctx is not canceled.
type stay struct{ from, to time.Time } // to is zero until the end

// until returns the end of s, or now if s has not ended.
func (s stay) until(now time.Time) time.Time {
	if s.to.IsZero() {
		return now
	}
	return s.to
}

// run returns when A and B have had and released the key, or when ctx has ended. A goroutine that
// hangs in a library may continue after that.
func (t *trial) run(ctx context.Context) {
	switch t.point.Moment {
	case loseAcquire:
		t.runAcquire(ctx)
	default:
		t.runHeld(ctx)
	}
}

// runAcquire is the trial with loseAcquire. B starts when Redis has granted the key to A and A's
// reply is lost. Both handlers work for the same time.
func (t *trial) runAcquire(ctx context.Context) {
	lost := make(chan struct{})
	t.net.trap(t.key, t.point.Cut, func() { t.lose(); close(lost) })
	var both sync.WaitGroup
	both.Go(func() {
		t.call()
		told, release, err := lockFor(ctx, callerTime, t.a, t.key)
		if t.tell("key", err); err == nil {
			t.enterA(told)
			wait(told, workTime)
			t.leave(&t.inA)
			_ = release() // only the result of the first call is measured
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

// runHeld is the trial with any other fault. A has the key and B waits for it when A's network
// fails.
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
		t.tell("done", release())
	})
	waitFor(ctx, bIn)
	close(aOut)
	both.Wait()
}

// start acquires the key for A before the fault. It tries again with another key, because some
// libraries do not always get a free key on a busy machine. That is not measured here.
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

// work is the handler of A. If the fault is not the loss of the release, it works until its ctx is
// canceled.
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

// lockFor waits for the key for at most d. It does not cancel the ctx after that, because some
// libraries derive the ctx of the lock from it.
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
