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

// An operator restricts a key under load, and ends that. Two processes call it all the time, with
// more callers than permits, so that permits are handed from call to call.
// Shows: V7
func TestRestrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lockers := inSpace(t, 2)
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		running, most := 0, 0
		var begun begins
		var calls sync.WaitGroup
		for i := range 40 {
			calls.Go(func() {
				for ctx.Err() == nil {
					le, err := lockers[i%2].AcquireShare(ctx, "k", lockcore.Limit{N: 10}, lockcore.Terms{Wait: lockcore.Forever})
					if err != nil {
						continue // the end of ctx
					}
					begun.add()
					mu.Lock()
					running++
					most = max(most, running)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					running--
					mu.Unlock()
					if err := le.Release(ctx); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
			})
		}
		during := func(d time.Duration) (int, int) {
			mu.Lock()
			most = 0
			mu.Unlock()
			begun.mu.Lock()
			begun.at = nil
			begun.mu.Unlock()
			time.Sleep(d)
			begun.mu.Lock()
			defer begun.mu.Unlock()
			mu.Lock()
			defer mu.Unlock()
			return most, begun.most(time.Second)
		}
		restrict := func(r lockcore.Restriction) {
			t.Helper()
			if err := lockers[0].Restrict(ctx, "k", r); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond) // calls that run, and hand-offs for 5 ms
		}
		if most, _ := during(time.Second); most != 10 {
			t.Errorf("%d calls ran at a time, want 10", most)
		}
		restrict(lockcore.Restriction{Limit: 2, For: time.Hour, Reason: "errors"})
		if most, _ := during(time.Second); most != 2 {
			t.Errorf("%d calls ran at a time, want 2", most)
		}
		h, err := lockers[1].Inspect(ctx, event.KindExclusive, "k")
		if r := h.Restriction; err != nil || r.Limit != 2 || r.Reason != "errors" || r.For > time.Hour || r.For < 59*time.Minute {
			t.Errorf("Inspect: %+v, %v", h.Restriction, err)
		}
		restrict(lockcore.Restriction{Rate: lockcore.Rate{N: 5}, For: time.Hour, Reason: "errors"})
		if most, begun := during(10 * time.Second); most != 1 || begun != 5 {
			t.Errorf("%d calls ran at a time, and %d began in a second, want 1 and 5", most, begun)
		}
		restrict(lockcore.Restriction{})
		time.Sleep(2 * time.Second) // calls that wait in the process ask again
		if most, begun := during(time.Second); most != 10 || begun < 1000 {
			t.Errorf("%d calls ran at a time, and %d began in a second, want 10 and more than 1,000", most, begun)
		}
		stop()
		calls.Wait()
	})
}

// A restricted rate is that of Throttle too, and a slower one stays as it is.
// Shows: V7
func TestRestrictThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inSpace(t, 1)[0]
		if err := l.Restrict(t.Context(), "k", lockcore.Restriction{Rate: lockcore.Rate{N: 2, Burst: 2}, For: time.Minute, Reason: "429"}); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			rate lockcore.Rate
			want time.Duration // for 21 calls
		}{
			{lockcore.Rate{N: 100, Burst: 10}, 9500 * time.Millisecond},
			{lockcore.Rate{N: 1}, 21 * time.Second}, // the bucket of the restriction is empty at first
		} {
			start := time.Now()
			for range 21 {
				if _, err := l.Throttle(t.Context(), "k", tt.rate, lockcore.ThrottleOptions{Wait: lockcore.Forever}); err != nil {
					t.Fatal(err)
				}
			}
			if took := time.Since(start); took < tt.want-time.Second || took > tt.want+time.Second {
				t.Errorf("21 calls of %+v took %v, want %v", tt.rate, took, tt.want)
			}
		}
	})
}

func TestRestrictRefuses(t *testing.T) {
	l := inSpace(t, 1)[0]
	for _, tt := range []struct {
		r    lockcore.Restriction
		want string
	}{
		{lockcore.Restriction{For: time.Hour, Reason: "r"}, "Restriction.Limit is 0 and Restriction.Rate is zero, one of them must bound something"},
		{lockcore.Restriction{Limit: -1, For: time.Hour, Reason: "r"}, "Restriction.Limit is -1, must be between 0 and 1000000"},
		{lockcore.Restriction{Limit: 1, For: time.Millisecond, Reason: "r"}, "Restriction.For is 1ms, must be between 1s and 720h0m0s"},
		{lockcore.Restriction{Limit: 1, For: time.Hour}, "Restriction.Reason is 0 bytes long, must be between 1 and 256 bytes"},
		{lockcore.Restriction{Rate: lockcore.Rate{N: -1}, For: time.Hour, Reason: "r"}, "Rate.N is -1, must be between 1 and 1000000"},
		{lockcore.Restriction{Rate: lockcore.Rate{N: 1, Cost: 2}, For: time.Hour, Reason: "r"}, "Restriction.Rate.Cost is 2, must be 0: each call takes its own"},
	} {
		if err := l.Restrict(t.Context(), "k", tt.r); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.r, err, tt.want)
		}
	}
	if err := l.Restrict(t.Context(), "", lockcore.Restriction{}); !errors.Is(err, lockcore.ErrKey) {
		t.Errorf("no key: %v", err)
	}
}
