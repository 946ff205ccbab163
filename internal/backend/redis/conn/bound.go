package conn

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/backend"
)

// connectTimeout bounds user code that sets up a connection, if no call's deadline applies: for a
// renewal, a subscription, or a batch of commands.
const connectTimeout = 10 * time.Second

// Limited is a ctx with an earlier deadline and no timer. The clients of this package apply the
// deadline to reads and writes of the connection. Their options bound everything else.
type Limited struct {
	context.Context //nolint:containedctx // Limited is a ctx itself

	End      time.Time // deadline of the send
	Detached bool      // the end of the parent does not cancel it
	Reply    [1]any    // space for a reply that is not a list
	Sends    Sends     // how a ClusterClient sent the call
	Received time.Time // time after the reply arrived; zero if the call was not sent through groups
}

// Own returns a copy for go-redis. User code that sets up a connection may keep the ctx that it
// gets. But l is part of a command, which is reused.
func (l *Limited) Own() *Limited {
	return &Limited{Context: l.Context, End: l.End, Detached: l.Detached}
}

// Parent returns the ctx without the deadline.
func (l *Limited) Parent() context.Context {
	if l.Detached {
		return context.WithoutCancel(l.Context)
	}
	return l.Context
}

// Done implements context.Context.
func (l *Limited) Done() <-chan struct{} {
	if l.Detached {
		return nil
	}
	return l.Context.Done()
}

// Err implements context.Context.
func (l *Limited) Err() error {
	if l.Detached {
		return nil
	}
	return l.Context.Err()
}

// Deadline implements context.Context.
func (l *Limited) Deadline() (time.Time, bool) {
	if end, ok := l.Context.Deadline(); ok && !l.Detached && end.Before(l.End) {
		return end, true
	}
	return l.End, true
}

// timed returns ctx with a deadline at most d from now, and with a timer. A Limited has a deadline
// but no timer. Its child with a later deadline has no timer either, because context.WithTimeout
// relies on the parent. User code that waits for such a child would hang.
func timed(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	end := time.Now().Add(d)
	if e, ok := ctx.Deadline(); ok && e.Before(end) {
		end = e
	}
	return context.WithDeadline(ctx, end) // a deadline that equals that of the parent gets a timer
}

// timedCredentials wraps the user's CredentialsProviderContext. Its ctx ends after connectTimeout,
// or with the call.
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

// both returns a function that calls first and then, if there was no error, second. Both may be nil.
func both(first, second func(context.Context, *redis.Conn) error) func(context.Context, *redis.Conn) error {
	if first == nil || second == nil {
		if first == nil {
			return second
		}
		return first
	}
	return func(ctx context.Context, cn *redis.Conn) error {
		if err := first(ctx, cn); err != nil {
			return err
		}
		return second(ctx, cn)
	}
}

// timedConnect wraps an OnConnect. Its ctx ends after connectTimeout, or with the call.
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

// Bounded runs call. On a client of the user it returns when ctx ends, even if call does not
// return.
func (c *Conn) Bounded(ctx context.Context, call func() (any, error)) (any, error) {
	if c.Own {
		return call()
	}
	return c.InGoroutine(ctx, call)
}

// InGoroutine runs call and returns when ctx ends, even if call does not return. The channel out
// has capacity for a result that arrives later.
func (c *Conn) InGoroutine(ctx context.Context, call func() (any, error)) (any, error) {
	if c.heldUp.Load() >= maxHeldUp {
		return nil, backend.ErrHeldUp
	}
	type result struct {
		v   any
		err error
	}
	out := make(chan result, 1)
	var left atomic.Bool
	go func() { // ends with call, which the timeouts of the client bound; after the end of ctx nothing waits for it
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
		return nil, ctx.Err() // not context.Cause, which may be a Redis error from a command of the user
	}
}
