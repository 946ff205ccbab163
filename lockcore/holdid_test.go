package lockcore_test

import (
	"context"
	"regexp"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/holdfast-go/holdfast/lockcore"
)

var holdID = regexp.MustCompile(`^[0-9a-f]{32}$`)

// Every hold has an id of its own, also those that follow each other under one grant; a nested run has that of its hold, and what is
// not held has none.
func TestHoldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		l, _, _ := w.locker(lockcore.Options{})
		ids := map[string]bool{} // guarded by the key
		note := func(ctx context.Context) string {
			token, id, ok := lockcore.HoldOf(ctx, "k")
			if want, held := lockcore.TokenOf(ctx, "k"); !ok || !held || token != want || !holdID.MatchString(id) {
				t.Errorf("token %d, id %q, held %v; want token %d", token, id, ok, want)
			}
			ids[id] = true
			return id
		}
		first := w.must(l.Acquire(t.Context(), "k", noWait))
		note(first.Context())
		var wg sync.WaitGroup
		for range 5 { // in line, so that the key is handed off
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
					t.Errorf("nested %q, outside %q", again, id)
				}
				_ = nested.Release(t.Context())
				_ = le.Release(t.Context())
			})
		}
		synctest.Wait()
		if _, _, ok := lockcore.HoldOf(first.Context(), "other"); ok {
			t.Error("a hold of another key")
		}
		_ = first.Release(t.Context())
		wg.Wait()
		if _, _, ok := lockcore.HoldOf(first.Context(), "k"); ok {
			t.Error("a hold that was released")
		}
		if len(ids) != 6 {
			t.Errorf("%d ids of 6 holds", len(ids))
		}
	})
}

// Two holds with one token, as two servers that do not know of each other's grants can give, have two ids.
func TestHoldOfEqualTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, _, _ := w.locker(lockcore.Options{})
		b, _, _ := w.locker(lockcore.Options{})
		one := w.must(a.Acquire(t.Context(), "k", noWait))
		if err := w.rdb.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		two := w.must(b.Acquire(t.Context(), "k", noWait)) // in a bubble no time has gone by
		t1, id1, _ := lockcore.HoldOf(one.Context(), "k")
		t2, id2, _ := lockcore.HoldOf(two.Context(), "k")
		if t1 != t2 || id1 == id2 {
			t.Errorf("tokens %d and %d, ids %q and %q", t1, t2, id1, id2)
		}
		_ = two.Release(t.Context())
		_ = one.Release(t.Context())
	})
}
