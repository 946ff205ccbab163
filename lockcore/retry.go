package lockcore

import (
	"context"
	"errors"
	"time"
)

// retryAsync retries do until it succeeds, until has passed or the Locker ends; in the last two
// cases it calls failed, if set. It completes through an outage, and checks a message about a lease
// that is not renewed. Withdrawals and releases have their own queue, see cleanups. If there is no
// room, a completion fails at once, and a check is dropped: the lease expires.
func (l *Locker) retryAsync(until time.Time, do func(context.Context) error, failed func(error)) {
	room := maxPending
	if failed == nil {
		room /= 2 // checks must not crowd out completions
	}
	l.mu.Lock()
	if l.ended || l.pending >= room {
		l.mu.Unlock()
		if failed != nil {
			failed(ErrUnavailable)
		}
		return
	}
	l.pending++
	l.wg.Add(1)
	l.mu.Unlock()
	go func() { // owner: l, which waits for it in join; it ends with a reply, by until, or with l.base
		defer l.wg.Done()
		err := l.retry(until, do)
		l.mu.Lock()
		l.pending--
		l.mu.Unlock()
		if err != nil && failed != nil {
			failed(err)
		}
	}()
}

func (l *Locker) retry(until time.Time, do func(context.Context) error) error {
	ctx, cancel := context.WithDeadline(l.base, until)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := do(ctx)
		if err == nil || permanent(err) && !errors.Is(err, errHeldUp) || ctx.Err() != nil || !sleep(ctx, pause) {
			return err
		}
	}
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
