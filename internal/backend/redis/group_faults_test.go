package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/redistest/faulty"
	"github.com/holdfast-go/holdfast/internal/testlevel"
	"github.com/holdfast-go/holdfast/lockcore"
)

// Two Lockers send groups for a few keys, while connections are cut, replies are lost and commands
// are delayed:
//   - a key never has two holders
//   - tokens grow
//   - each call is granted its key within seconds after the last fault
//   - no key stays held
func TestGroupFaults(t *testing.T) {
	testlevel.Campaign(t)
	t.Parallel()
	for n := range 4 { // new Lockers and new faults in each
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			groupsUnderFaults(t)
		})
	}
}

func groupsUnderFaults(t *testing.T) {
	t.Helper()
	w, control := realWorld(t), redistest.NewControl(t)
	const keys = 16 // so many that the requests of a Locker are sent in groups
	var holders, lastToken [keys]atomic.Int64
	var over atomic.Bool
	var holds atomic.Int64
	var calls sync.WaitGroup
	var all []*faulty.Network
	for range 2 {
		l, faults, _ := w.Locker(lockcore.Options{})
		all = append(all, faults)
		for range callers {
			calls.Go(func() {
				for !over.Load() {
					k := rand.IntN(keys)
					le, err := l.Acquire(t.Context(), fmt.Sprint("k", k), lockcore.Terms{Wait: lockcore.Forever})
					if err != nil {
						t.Error(err)
						return
					}
					if n := holders[k].Add(1); n != 1 {
						t.Errorf("key %d has %d holders", k, n)
					}
					if before := lastToken[k].Swap(le.Token()); before >= le.Token() {
						t.Errorf("token %d after %d", le.Token(), before)
					}
					time.Sleep(100 * time.Microsecond)
					holds.Add(1)
					holders[k].Add(-1)
					if err := le.Release(context.Background()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
	}
	awaitHolds := func(n int64) {
		at := holds.Load()
		eventually(t, "more holds", func() bool { return holds.Load() >= at+n })
	}
	struck := 0
	for range 3 {
		awaitHolds(50)
		var planted []*faulty.Fault
		for _, faults := range all {
			for _, plant := range faultKinds {
				planted = append(planted, plant(faults, faulty.Nth(1+rand.IntN(30), nil)))
			}
		}
		strikes := func() (n int) {
			for _, f := range planted {
				if struckBy(f) {
					n++
				}
			}
			return n
		}
		time.Sleep(500 * time.Millisecond)
		eventually(t, "half of the faults strike", func() bool { return strikes() >= len(planted)/2 })
		struck += strikes()
		for _, f := range planted {
			f.Remove() // delayed commands are delivered
		}
		all[rand.IntN(2)].Cut()
	}
	over.Store(true)
	ended := time.Now()
	calls.Wait()
	if d := time.Since(ended); d > 6*time.Second+control.Late(ended) {
		t.Errorf("the last call ended %v after the last fault", d)
	}
	t.Logf("%d holds under %d faults", holds.Load(), struck)
	third, _, _ := w.Locker(lockcore.Options{})
	for k := range keys {
		le, err := third.Acquire(t.Context(), fmt.Sprint("k", k), lockcore.Terms{Wait: 15 * time.Second}) // half of the default lease: a key that stayed held would take longer
		if err != nil {
			t.Fatal(err)
		}
		if le.Abandoned() {
			t.Error("Abandoned is true, but all holds were released")
		}
		_ = le.Release(t.Context())
	}
}
