package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Close ends the Locker. From now on Acquire and Claim answer ErrClosed at once, even those that wait; only a nested call
// on a key that ctx holds still enters. Leases are kept while their handlers run, and Close waits for them. When ctx ends
// (without a deadline: after the longest lease held) the ctx of the rest is canceled with ErrGivenUp and nothing is renewed any more; their keys are free at the end of their leases, never
// sooner, for the handlers may still run. The error then says how many. Close it before the client.
func (l *Locker) Close(ctx context.Context) error {
	ctx, cancel, idle := l.shut(ctx)
	defer cancel()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	left := l.dropAll()
	l.dog.stop()
	l.wake.close()
	l.join(ctx)
	l.once.Do(l.conn.close)
	if left > 0 {
		return fmt.Errorf("lockcore: closed while %d leases were held: %w", left, context.Cause(ctx))
	}
	return nil
}

// shut lets nobody in any more and returns a channel that closes when nothing is held.
func (l *Locker) shut(ctx context.Context) (context.Context, context.CancelFunc, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	if l.empty == nil {
		l.empty = make(chan struct{})
		l.emptyLocked()
	}
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, l.empty
	}
	longest := time.Duration(0)
	for _, g := range l.grants {
		longest = max(longest, g.terms.Lease)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(longest, l.terms.Lease))
	return ctx, cancel, l.empty
}

// dropAll cancels what is still held and says how many that were.
func (l *Locker) dropAll() int {
	l.mu.Lock()
	rest := slices.Collect(maps.Values(l.grants))
	l.mu.Unlock()
	n := 0
	for _, g := range rest {
		if h := g.holder(); h != nil && h.running() {
			n++
		}
		g.lose(ErrGivenUp) //planted:close-gives-up
	}
	return n
}

// join waits for what runs in the background: until ctx ends, then it is told to stop and waited for.
func (l *Locker) join(ctx context.Context) {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends with the last of them, which l.stop bounds
		l.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	l.stop()
	l.cleanups.stop()
	<-done
	l.cleanups.report()
}
