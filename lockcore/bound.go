package lockcore

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// connectTimeout bounds code of the user that sets up a connection, where no call does: a renewal, a subscription, a
// batch of commands.
const connectTimeout = 10 * time.Second

// limited is a ctx with an earlier deadline and no timer. Our own clients set it as the deadline of the connection; what they do besides is
// bounded by their options.
type limited struct {
	context.Context //nolint:containedctx // it is one

	limit time.Duration // of one send
	end   time.Time     // of this one
	free  bool          // it goes on when the parent has ended
}

func (l *limited) parent() context.Context {
	if l.free {
		return context.WithoutCancel(l.Context)
	}
	return l.Context
}

func (l *limited) Done() <-chan struct{} {
	if l.free {
		return nil
	}
	return l.Context.Done()
}

func (l *limited) Err() error {
	if l.free {
		return nil
	}
	return l.Context.Err()
}

// ended says that ctx is over: its timer may be a moment behind its deadline.
func ended(ctx context.Context) bool {
	end, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(end)
}

// endOf is why ctx is over, or nil. Its cause is there when its timer has fired, which may be a moment after its deadline.
func endOf(ctx context.Context) error {
	if !ended(ctx) {
		return nil
	}
	if ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return context.DeadlineExceeded // a custom ctx that has a deadline but no timer
}

// byCaller says that the caller's end, not ours, ended a send.
func byCaller(ctx context.Context) bool {
	l, ok := ctx.(*limited)
	return ok && !l.free && ended(l.Context)
}

func (l *limited) Deadline() (time.Time, bool) {
	if end, ok := l.Context.Deadline(); ok && !l.free && end.Before(l.end) {
		return end, true
	}
	return l.end, true
}

// timed is ctx with a deadline at most d away and a timer for it. A limited has a deadline but no timer. A child of it
// with a later deadline has no timer either: context.WithTimeout relies on the parent. Code of the user that waits for
// such a child would hang.
func timed(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(d)
	if e, ok := ctx.Deadline(); ok && e.Before(end) {
		end = e
	}
	return context.WithDeadline(ctx, end) // an equal deadline gets a timer
}

// timedCredentials is the user's CredentialsProviderContext with a ctx that ends after connectTimeout, or with the call.
func timedCredentials(next func(context.Context) (string, string, error)) func(context.Context) (string, string, error) {
	if next == nil {
		return nil
	}
	return func(ctx context.Context) (string, string, error) {
		ctx, cancel := timed(ctx, connectTimeout)
		defer cancel()
		return next(ctx)
	}
}

// timedConnect is the same for the user's OnConnect.
func timedConnect(next func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	if next == nil {
		return nil
	}
	return func(ctx context.Context, cn *redis.Conn) error {
		ctx, cancel := timed(ctx, connectTimeout)
		defer cancel()
		return next(ctx, cn)
	}
}

// bounded returns when ctx ends, also if call does not. Who wins is decided by out, which has room for the loser.
func (c *conn) bounded(ctx context.Context, call func() (any, error)) (any, error) {
	if c.own {
		return call()
	}
	return c.apart(ctx, call)
}

// apart is bounded for any client, our own too: it returns when ctx is canceled.
func (c *conn) apart(ctx context.Context, call func() (any, error)) (any, error) {
	if c.heldUp.Load() >= maxHeldUp {
		return nil, errHeldUp
	}
	type result struct {
		v   any
		err error
	}
	out := make(chan result, 1)
	var left atomic.Bool
	go func() { // ends with the call, which the client's own timeouts bound; nobody waits for it once ctx has ended
		v, err := call()
		out <- result{v, err}
		if !left.CompareAndSwap(false, true) {
			c.heldUp.Add(-1)
		}
	}()
	select {
	case r := <-out:
		return r.v, r.err
	case <-ctx.Done():
		if left.CompareAndSwap(false, true) {
			c.heldUp.Add(1)
		}
		return nil, context.Cause(ctx)
	}
}
