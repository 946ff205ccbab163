package lockcore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/event"
	"github.com/holdfast-go/holdfast/internal/access"
	"github.com/holdfast-go/holdfast/internal/backend"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Inspect counts the parked tasks of a key, and names the one that was parked first.
func TestInspectParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		onRedis, _, _ := w.Locker(lockcore.Options{})
		for name, l := range map[string]*lockcore.Locker{"redis": onRedis, "memory": memoryLocker(t, lockcore.MemoryOptions{})} {
			inspect := func(kind event.Kind, want lockcore.Holding) {
				t.Helper()
				h, err := l.Inspect(t.Context(), kind, "k")
				if err != nil || h.Parked != want.Parked || h.ParkedFor != want.ParkedFor || h.OldestParked != want.OldestParked {
					t.Errorf("%s: %+v, %v; want %+v", name, h, err, want)
				}
			}
			le := w.Must(l.Acquire(t.Context(), "k", noWait))
			b := access.Of(l).Backend
			key := b.Key(backend.KindExclusive, "k")
			for _, entry := range []string{"eu/default/2", "eu/default/1"} {
				if r, err := b.Park(t.Context(), backend.ParkRequest{Key: &key, Entry: entry, Most: 10, Keep: time.Hour}); err != nil || r.Outcome != backend.Parked {
					t.Fatalf("%s: %+v, %v", name, r, err)
				}
				time.Sleep(time.Second)
			}
			parked := lockcore.Holding{Parked: 2, ParkedFor: 2 * time.Second, OldestParked: "eu/default/2"}
			inspect(event.KindExclusive, parked)
			inspect(event.KindOnce, lockcore.Holding{})
			ok(t, le.Release(t.Context()))
			inspect(event.KindExclusive, parked)
			_, err := b.Unpark(t.Context(), backend.UnparkRequest{Key: &key, Remove: []string{"eu/default/2"}})
			ok(t, err)
			inspect(event.KindExclusive, lockcore.Holding{Parked: 1, ParkedFor: time.Second, OldestParked: "eu/default/1"})
		}
	})
}
