package redis

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

// limited is a ctx with an earlier deadline and no timer. The clients of this package apply the
// deadline to reads and writes of the connection. Their options bound everything else.
type limited struct {
	context.Context //nolint:containedctx // limited is a ctx itself

	end      time.Time // deadline of the send
	detached bool      // the end of the parent does not cancel it
	reply    [1]any    // space for a reply that is not a list
	sends    sends     // how a ClusterClient sent the call
	received time.Time // time after the reply arrived; zero if the call was not sent through groups
}

// own returns a copy for go-redis. User code that sets up a connection may keep the ctx that it
// gets. But l is part of a command, which is reused.
func (l *limited) own() *limited {
	return &limited{Context: l.Context, end: l.end, detached: l.detached}
}

func (l *limited) parent() context.Context {
	if l.detached {
		return context.WithoutCancel(l.Context)
	}
	return l.Context
}

func (l *limited) Done() <-chan struct{} {
	if l.detached {
		return nil
	}
	return l.Context.Done()
}

func (l *limited) Err() error {
	if l.detached {
		return nil
	}
	return l.Context.Err()
}

func (l *limited) Deadline() (time.Time, bool) {
	if end, ok := l.Context.Deadline(); ok && !l.detached && end.Before(l.end) {
		return end, true
	}
	return l.end, true
}

// timed returns ctx with a deadline at most d from now, and with a timer. A limited has a deadline
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

// timedConnect wraps the user's OnConnect. Its ctx ends after connectTimeout, or with the call.
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

// bounded runs call. On a client of the user it returns when ctx ends, even if call does not
// return.
func (c *conn) bounded(ctx context.Context, call func() (any, error)) (any, error) {
	if c.own {
		return call()
	}
	return c.inGoroutine(ctx, call)
}

// inGoroutine runs call and returns when ctx ends, even if call does not return. The channel out
// has capacity for a result that arrives later.
func (c *conn) inGoroutine(ctx context.Context, call func() (any, error)) (any, error) {
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
