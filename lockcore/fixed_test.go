package lockcore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/lockcore"
)

// The ctx of a fixed lease ends before the lease, and the key is free at terms.Lease after the
// grant, not sooner and at most 250 ms later. Extend prolongs both. The rows are those of the table
// of AcquireFixed.
// Shows: L9
func TestAcquireFixed(t *testing.T) {
	const lease, longer = 10 * time.Second, 25 * time.Second
	for name, extend := range map[string]bool{"as granted": false, "extended": true} {
		t.Run(name, func(t *testing.T) {
			onBackends(t, func(t *testing.T, l *lockcore.Locker) {
				le, err := l.AcquireFixed(t.Context(), "k", lockcore.Terms{Lease: lease})
				ok(t, err)
				since, end := time.Now(), lease
				if extend {
					time.Sleep(8 * time.Second)
					ok(t, le.Extend(t.Context(), longer))
					since, end = time.Now(), longer
				}
				<-le.Context().Done()
				if took, want := time.Since(since), end-end*11/100-5*time.Millisecond; took < want-10*time.Millisecond || took > want+10*time.Millisecond {
					t.Errorf("the ctx ended after %v, want %v", took, want)
				}
				wantErr(t, "its cause", context.Cause(le.Context()), lockcore.ErrLost)
				_, err = l.Acquire(t.Context(), "k", noWait)
				wantErr(t, "a call before the end of the lease", err, lockcore.ErrBusy)
				next, err := l.Acquire(t.Context(), "k", lockcore.Terms{Wait: time.Minute})
				ok(t, err)
				if took := time.Since(since); took < end || took > end+250*time.Millisecond {
					t.Errorf("the key was free after %v, want %v", took, end)
				}
				wantErr(t, "Release", le.Release(t.Context()), lockcore.ErrLost)
				ok(t, next.Release(t.Context()))
			})
		})
	}
}

// Inspect shows that a lease is fixed, and ForceClear returns ErrAlive for it.
// Shows: L16
func TestAcquireFixedOperators(t *testing.T) {
	onBackends(t, func(t *testing.T, l *lockcore.Locker) {
		le, err := l.AcquireFixed(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
		if err != nil || !h.Fixed || h.Lease != 30*time.Second {
			t.Errorf("a fixed lease: %+v, %v", h, err)
		}
		if err := l.ForceClear(t.Context(), event.KindExclusive, "k", h); !errors.Is(err, lockcore.ErrAlive) {
			t.Errorf("ForceClear: %v, want ErrAlive", err)
		}
		ok(t, le.Release(t.Context()))
		renewed, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
		ok(t, err)
		if h, err := l.Inspect(t.Context(), event.KindExclusive, "k"); err != nil || h.Fixed {
			t.Errorf("a renewed lease: %+v, %v", h, err)
		}
		ok(t, renewed.Release(t.Context()))
	})
}
