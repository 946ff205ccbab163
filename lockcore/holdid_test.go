package lockcore_test

import (
	"context"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/lockcore"
)

var holdID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Each hold has its own id, also holds that follow each other under one grant. A nested run has the
// id of its hold. A key that is not held has none.
// Shows: F7
func TestHoldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		ids := map[string]bool{} // guarded by the key
		note := func(ctx context.Context) string {
			h, ok := access.HoldOf(ctx, "k")
			inner, _ := access.Current(ctx)
			if !ok || h != inner || h.Key != "k" || h.Token <= 0 || h.Attempt != 1 || h.TookOver || !holdID.MatchString(h.ID()) {
				t.Errorf("%+v with id %q, held %v; the innermost is %+v", h, h.ID(), ok, inner)
			}
			ids[h.ID()] = true
			return h.ID()
		}
		first := w.Must(l.Acquire(t.Context(), "k", noWait))
		note(first.Context())
		var wg sync.WaitGroup
		for range 5 { // they wait, so the key is handed off
			wg.Go(func() {
				le, err := l.Acquire(t.Context(), "k", lockcore.Terms{})
				if err != nil {
					t.Error(err)
					return
				}
				id := note(le.Context())
				nested, err := l.Acquire(le.Context(), "k", noWait)
				if err != nil {
					t.Error(err)
					return
				}
				if again := note(nested.Context()); again != id {
					t.Errorf("id of the nested run %q, of its hold %q", again, id)
				}
				_ = nested.Release(t.Context())
				_ = le.Release(t.Context())
			})
		}
		synctest.Wait()
		if _, ok := access.HoldOf(first.Context(), "other"); ok {
			t.Error("HoldOf returns a hold of another key")
		}
		_ = first.Release(t.Context())
		wg.Wait()
		if _, ok := access.HoldOf(first.Context(), "k"); ok {
			t.Error("HoldOf returns a released hold")
		}
		if len(ids) != 6 {
			t.Errorf("%d ids for 6 holds", len(ids))
		}
	})
}

// Two holds have the same token, because two servers without each other's data granted them. They
// have different ids.
// Shows: F7
func TestHoldOfEqualTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.Locker(lockcore.Options{})
		b, _, _ := w.Locker(lockcore.Options{})
		one := w.Must(a.Acquire(t.Context(), "k", noWait))
		if err := w.Redis.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		two := w.Must(b.Acquire(t.Context(), "k", noWait)) // at the same virtual time, so the token is the same
		h1, _ := access.HoldOf(one.Context(), "k")
		h2, _ := access.HoldOf(two.Context(), "k")
		if h1.Token != h2.Token || h1.ID() == h2.ID() {
			t.Errorf("tokens %d and %d, ids %q and %q", h1.Token, h2.Token, h1.ID(), h2.ID())
		}
		_ = two.Release(t.Context())
		_ = one.Release(t.Context())
	})
}

// GrantedAt is the time of the backend at the grant. After a hand-off the local time since the
// grant is added. Inspect returns the same value.
func TestGrantedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSpace(t)
		l := w.Locker(lockcore.Options{})
		first := w.Must(l.Acquire(t.Context(), "k", noWait))
		start := first.GrantedAt()
		if d := time.Since(start); d < 0 || d > time.Millisecond {
			t.Errorf("granted %v ago, want now", d)
		}
		got := make(chan *lockcore.Lease)
		go func() { got <- w.Must(l.Acquire(t.Context(), "k", lockcore.Terms{})) }()
		time.Sleep(2 * time.Millisecond) // within a batch
		h, err := l.Inspect(t.Context(), event.KindExclusive, "k")
		if err != nil || !h.GrantedAt.Equal(start) {
			t.Errorf("Inspect: %v, %v; want %v", h.GrantedAt, err, start)
		}
		_ = first.Release(t.Context())
		second := <-got
		if d := second.GrantedAt().Sub(start); d != 2*time.Millisecond {
			t.Errorf("the next hold began %v later, want 2ms", d)
		}
		if h, ok := access.Current(second.Context()); !ok || !h.GrantedAt.Equal(second.GrantedAt()) {
			t.Errorf("Current: %+v, %v", h, ok)
		}
		_ = second.Release(t.Context())
	})
}
