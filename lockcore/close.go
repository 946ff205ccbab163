package lockcore

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// Close ends the Locker. From now on Acquire, Claim and Adopt return ErrClosed, and so do calls
// that wait. Only a nested call on a key that ctx holds still enters. Call Close after the workers
// have stopped taking work, and before the Redis client is closed.
//
// Close waits for the leases, which are kept while their handlers run. When ctx ends, the ctx of
// each remaining handler is canceled with ErrGivenUp, and its lease is no longer renewed. Its key
// is free at the end of the lease, never sooner, because the handler may still run. Then Close
// returns an error with the number of these leases and the cause of ctx. Otherwise it returns nil.
//
// If ctx has no deadline, Close waits for at most the longest Lease of the keys held. If no key is
// held, it waits for at most the Lease of Options.Terms (30 s by default).
//
// Close also waits until Redis has confirmed the open withdrawals, releases and completions. Those
// that Redis does not confirm before ctx ends are reported as CleanupFailed or CompletionFailed. Under
// [NewQuorum] it waits for one second if servers do not reply: what they still grant ends with its lease.
//
// Close returns at most 100 ms after ctx ends, even if Redis or the client hangs. By then the
// connections of the Locker are closed and its goroutines have ended, with three exceptions:
//
//   - Code of the user hangs: code that go-redis calls, such as OnConnect, or Traceparent of the
//     Observer.
//   - Redis is unavailable. go-redis checks once a second whether Redis is available again. That
//     goroutine ends up to a second later.
//   - A failover client or a wrapper ignores its ctx. Its calls end by the timeouts of that client.
//     Nothing depends on them.
func (l *Locker) Close(ctx context.Context) error {
	ctx, cancel, idle := l.shut(ctx)
	defer cancel()
	l.endWaits()
	select {
	case <-idle:
	case <-ctx.Done():
	}
	left := l.dropAll()
	l.watchdog.stop()
	l.subscription.close()
	l.join(ctx)
	if left > 0 {
		return fmt.Errorf("lockcore: closed, leases still held: %d: %w", left, context.Cause(ctx))
	}
	return nil
}

// shut refuses new calls. It returns ctx with a deadline, and a channel that is closed when there
// are neither grants nor calls.
func (l *Locker) shut(ctx context.Context) (context.Context, context.CancelFunc, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	if l.idle == nil {
		l.idle = make(chan struct{})
		l.signalIdleLocked()
	}
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, cancel, l.idle
	}
	longest := time.Duration(0)
	for _, g := range l.grants {
		longest = max(longest, g.leaseTerm)
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(longest, l.terms.Lease))
	return ctx, cancel, l.idle
}

// dropAll ends the leases that are left, and returns the number of holds that ran.
func (l *Locker) dropAll() int {
	l.mu.Lock()
	var rest []*grant
	for _, g := range l.grants {
		rest = append(rest, g.allLocked()...)
	}
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

// closeGrace is how long Close waits for goroutines and clients after it has ended their ctx and
// their connections. They end at once, unless go-redis runs code of the user that does not return,
// such as OnConnect.
const closeGrace = 100 * time.Millisecond

// join waits for the background work until ctx ends. Then it ends the ctx and the connections of
// the remaining work. So a command under way on the Locker's own connections fails at once, not at
// its time limit.
func (l *Locker) join(ctx context.Context) {
	settled := l.settle(ctx)
	all := make(chan struct{})
	go func() { // ends with code of the user that go-redis calls, or with the limit of go-redis for it
		l.closeBackend.Do(l.backend.Close)
		<-settled
		close(all)
	}()
	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-all:
	case <-grace.C:
	}
	l.backend.Report()
}

// settle waits for the background work until ctx ends, and then ends the ctx of that work. The
// channel is closed when the last of it has ended.
func (l *Locker) settle(ctx context.Context) <-chan struct{} {
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends with the background work, which l.stop and the time limits of commands end
		l.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	l.backend.Drain(ctx)
	l.stop()
	return done
}
