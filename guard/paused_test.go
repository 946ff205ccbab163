package guard_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/guard"
	"github.com/holdfast-go/holdfast/lockcore"
)

// An error that Paused has marked pauses the key of the innermost guard, before the key is released,
// and not those of the guards around it.
// Shows: V6
func TestPaused(t *testing.T) {
	refused := errors.New("429")
	for name, run := range map[string]func(ctx context.Context, locks *lockcore.Locker, fn func(context.Context) error) error{
		"Exclusive": func(ctx context.Context, locks *lockcore.Locker, fn func(context.Context) error) error {
			return guard.Exclusive(ctx, locks, "partner", lockcore.Terms{}, fn)
		},
		"Limited": func(ctx context.Context, locks *lockcore.Locker, fn func(context.Context) error) error {
			return guard.Limited(ctx, locks, "partner", lockcore.Limit{N: 5}, lockcore.Terms{}, fn)
		},
		"Throttled": func(ctx context.Context, locks *lockcore.Locker, fn func(context.Context) error) error {
			return guard.Throttled(ctx, locks, "partner", lockcore.Rate{N: 100}, lockcore.ThrottleOptions{}, fn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, f *fixture) {
				err := guard.Exclusive(t.Context(), f.locks, "outer", lockcore.Terms{}, func(ctx context.Context) error {
					return run(ctx, f.locks, func(context.Context) error { return guard.Paused(refused, 3*time.Second) })
				})
				if !errors.Is(err, refused) {
					t.Errorf("the error is %v", err)
				}
				start := time.Now()
				err = guard.Exclusive(t.Context(), f.locks, "partner", noWait, nothing)
				var busy *lockcore.BusyError
				if !errors.As(err, &busy) || busy.PauseReason == "" {
					t.Errorf("during the pause: %v", err)
				}
				if err := guard.Exclusive(t.Context(), f.locks, "outer", noWait, nothing); err != nil {
					t.Errorf("the outer key: %v", err)
				}
				if err := guard.Exclusive(t.Context(), f.other, "partner", lockcore.Terms{Wait: time.Minute}, nothing); err != nil || time.Since(start) < 2900*time.Millisecond {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
	t.Run("an error that is returned again", func(t *testing.T) {
		inBubble(t, func(t *testing.T, f *fixture) {
			marked := guard.Paused(refused, time.Minute)
			var wg sync.WaitGroup
			for _, key := range []string{"one", "two"} {
				wg.Go(func() {
					_ = guard.Exclusive(t.Context(), f.locks, key, lockcore.Terms{}, func(context.Context) error { return marked })
					if err := guard.Exclusive(t.Context(), f.locks, key, noWait, nothing); !errors.Is(err, lockcore.ErrBusy) {
						t.Errorf("%q is not paused: %v", key, err)
					}
				})
			}
			wg.Wait()
		})
	})
	if guard.Paused(nil, time.Second) != nil || !errors.Is(guard.Paused(refused, 0), refused) {
		t.Error("Paused changes an error without a pause")
	}
}
