package lockcore_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// During a pause no call of any process begins, and those that run go on. Waiting calls begin at its
// end, and at once if it is ended. A call that does not wait learns the reason.
// Shows: V6
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lockers, forever := inSpace(t, 2), lockcore.Terms{Wait: lockcore.Forever}
		for name, begin := range map[string]func(l *lockcore.Locker) error{
			"Acquire": func(l *lockcore.Locker) error {
				le, err := l.Acquire(t.Context(), "k", forever)
				if err == nil {
					err = le.Release(t.Context())
				}
				return err
			},
			"AcquireShare": func(l *lockcore.Locker) error {
				le, err := l.AcquireShare(t.Context(), "k", lockcore.Limit{N: 5}, forever)
				if err == nil {
					err = le.Release(t.Context())
				}
				return err
			},
			"Throttle": func(l *lockcore.Locker) error {
				_, err := l.Throttle(t.Context(), "k", lockcore.Rate{N: 1000}, lockcore.ThrottleOptions{Wait: lockcore.Forever})
				return err
			},
		} {
			for _, d := range []time.Duration{3 * time.Second, time.Minute} { // the second pause is ended after 3 s
				running, err := lockers[0].Acquire(t.Context(), "k", forever)
				if err != nil {
					t.Fatal(err)
				}
				if err := lockers[1].Pause(t.Context(), "k", d, "429 of acme"); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				var calls sync.WaitGroup
				for _, l := range lockers {
					calls.Go(func() {
						if err := begin(l); err != nil || time.Since(start) < 3*time.Second-time.Microsecond || time.Since(start) > 3*time.Second+100*time.Millisecond {
							t.Errorf("%s: %v after %v", name, err, time.Since(start))
						}
					})
				}
				time.Sleep(time.Second)
				if running.Context().Err() != nil {
					t.Error("the call that ran was ended")
				}
				if err := running.Release(t.Context()); err != nil {
					t.Error(err)
				}
				_, err = lockers[1].Acquire(t.Context(), "k", lockcore.Terms{Wait: lockcore.NoWait})
				var busy *lockcore.BusyError
				if !errors.As(err, &busy) || busy.PauseReason != "429 of acme" || busy.Remaining != d-time.Second || busy.RetryAfter() != (d-time.Second) {
					t.Errorf("%v: %+v", err, busy)
				}
				h, err := lockers[0].Inspect(t.Context(), event.KindExclusive, "k")
				if err != nil || h.PauseReason != "429 of acme" || h.PauseLeft != d-time.Second || h.State != lockcore.StateCooling {
					t.Errorf("Inspect: %+v, %v", h, err)
				}
				if time.Sleep(2 * time.Second); d > 3*time.Second {
					if err := lockers[0].Pause(t.Context(), "k", 0, ""); err != nil {
						t.Error(err)
					}
				}
				calls.Wait()
			}
		}
	})
}

// Bad arguments are refused with field, value and bound.
func TestPauseBadInput(t *testing.T) {
	l := inSpace(t, 1)[0]
	for _, tt := range []struct {
		d            time.Duration
		reason, want string
	}{
		{-1, "r", "d is -1ns, must be 0 or between 1ms and 24h0m0s"},
		{25 * time.Hour, "r", "d is 25h0m0s, must be 0 or between 1ms and 24h0m0s"},
		{time.Second, "", "reason is 0 bytes long, must be between 1 and 256 bytes"},
		{time.Second, strings.Repeat("r", 257), "reason is 257 bytes long"},
		{time.Second, "\xff", "reason must be valid UTF-8 without NUL"},
		{time.Second, "a\x00", "reason must be valid UTF-8 without NUL"},
	} {
		if err := l.Pause(t.Context(), "k", tt.d, tt.reason); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, %q: %v, want %q", tt.d, tt.reason, err, tt.want)
		}
	}
	if err := l.Pause(t.Context(), "", 0, ""); !errors.Is(err, lockcore.ErrKey) {
		t.Errorf("no key: %v", err)
	}
	_ = l.Close(context.Background())
	if err := l.Pause(t.Context(), "k", time.Second, "r"); !errors.Is(err, lockcore.ErrUnavailable) && !errors.Is(err, lockcore.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
