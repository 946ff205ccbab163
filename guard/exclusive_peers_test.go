package guard_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// These tests repeat mistakes of other lock libraries and of their users. docs/guarantee-tests.md lists
// them all.

// open-match #1578, blnk #355, ncps #913 and authgear #5721: the unlock uses the ctx of the
// request. That ctx has ended, so the lock is held until it expires. Here the key is released.
func TestPeer_openMatchUnlockOnACanceledCtx(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		err := guard.Exclusive(ctx, f.locks, "k", lockcore.Terms{}, func(ctx context.Context) error {
			cancel()
			return context.Cause(ctx)
		})
		if err != context.Canceled { //nolint:errorlint // unchanged
			t.Errorf("the handler's error: %v", err)
		}
		if err := guard.Exclusive(t.Context(), f.other, "k", noWait, nothing); err != nil {
			t.Error(err)
		}
	})
}

// Redisson #3521 and #4368: a thread dies with a lock, and its watchdog keeps the lock forever. Here
// the goroutine of a handler ends, the key is free, and no more commands are sent.
func TestPeer_redissonThreadThatDied(t *testing.T) {
	inBubble(t, func(t *testing.T, f *fixture) {
		_ = guard.Exclusive(t.Context(), f.locks, "k", noWait, nothing)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = guard.Exclusive(t.Context(), f.locks, "k", lockcore.Terms{}, func(context.Context) error {
				time.Sleep(time.Minute)
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		if err := guard.Exclusive(t.Context(), f.other, "k", noWait, nothing); err != nil {
			t.Error(err)
		}
		f.count.Reset()
		time.Sleep(time.Hour)
		if sent := f.count.Commands(); len(sent) > 0 {
			t.Errorf("after the end of the goroutine it sent %v", sent)
		}
	})
}
